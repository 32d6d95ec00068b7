"""Tests mirror the rooms of the package; `contract` ties them to requirements, `compat` to other programs."""
