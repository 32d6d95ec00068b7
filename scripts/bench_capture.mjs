// A stand-in for how the TypeScript server captures an agent's output, known only from its log and its speed: a stamp
// for each part that comes through the pipe, and nobody waits for the disk.
//
//   node bench_capture.mjs LOG PROGRAM [ARG]...
import { spawn } from "node:child_process";
import { createWriteStream } from "node:fs";

const [path, program, ...args] = process.argv.slice(2);
const log = createWriteStream(path, { flags: "a" });
const child = spawn(program, args, { stdio: ["ignore", "pipe", "pipe"] });

function follow(stream, name) {
  stream.on("data", (data) => log.write(`[${new Date().toISOString()}] [${name}] ${data.toString()}`));
}

follow(child.stdout, "stdout");
follow(child.stderr, "stderr");
child.on("close", (code) => {
  log.end(`\n[${new Date().toISOString()}] Process exited with code ${code}\n`);
  process.exitCode = code ?? 1;
});
