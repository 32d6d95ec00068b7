"""What is true of a run and what may happen to it: values in, values out, no file, clock, process or environment."""
