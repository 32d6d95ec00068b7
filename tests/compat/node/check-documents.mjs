// Reads file names on stdin, one a line. Prints {"file", "problem"} as one JSON line for each document that is
// not exactly what JSON.stringify(document, null, 2) writes or that the schema refuses; exits 1 if there was one.
import { readFileSync } from "node:fs";
import { metaSchema } from "./meta-schema.mjs";

// ignoreBOM keeps the mark in the text, where JSON.parse refuses it as the server does.
const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

function firstDifference(found, wanted) {
  let at = 0;
  while (at < found.length && at < wanted.length && found[at] === wanted[at]) at += 1;
  const near = (bytes) => JSON.stringify(bytes.subarray(Math.max(0, at - 10), at + 30).toString());
  return `not as JavaScript writes it, from byte ${at}: ${near(found)} instead of ${near(wanted)}`;
}

function problemOf(file) {
  let bytes;
  let document;
  try {
    bytes = readFileSync(file);
    document = JSON.parse(utf8.decode(bytes));
  } catch (error) {
    return `unreadable: ${error.message}`;
  }
  const written = Buffer.from(JSON.stringify(document, null, 2));
  if (!bytes.equals(written)) return firstDifference(bytes, written);
  const verdict = metaSchema.safeParse(document);
  if (verdict.success) return null;
  return verdict.error.issues.map((issue) => `${issue.path.join(".") || "document"}: ${issue.message}`).join("; ");
}

let bad = 0;
for (const file of readFileSync(0, "utf8").split("\n").filter(Boolean)) {
  const problem = problemOf(file);
  if (problem === null) continue;
  bad += 1;
  console.log(JSON.stringify({ file, problem }));
}
process.exitCode = bad === 0 ? 0 : 1;
