// Reads file names on stdin, one a line. Prints {"file", "problem"} as one JSON line for each document that is
// not exactly what JSON.stringify(document, null, 2) writes, that the schema refuses, or on which the server's double
// could not ask a further question without a loss; exits 1 if there was one.
import { readFileSync, realpathSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { isDeepStrictEqual } from "node:util";
import { metaSchema } from "./meta-schema.mjs";
import { asked } from "./server-double.mjs";

// ignoreBOM keeps the mark in the text, where JSON.parse refuses it as the server does.
const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

const NEXT = {
  messageId: "ffffffff-ffff-4fff-8fff-ffffffffffff",
  questionContent: "And now?",
  questionTimestamp: "2026-01-01T00:00:00.000Z",
  messageStatus: "pending_parent_reply",
};

function firstDifference(found, wanted) {
  let at = 0;
  while (at < found.length && at < wanted.length && found[at] === wanted[at]) at += 1;
  const near = (bytes) => JSON.stringify(bytes.subarray(Math.max(0, at - 10), at + 30).toString());
  return `not as JavaScript writes it, from byte ${at}: ${near(found)} instead of ${near(wanted)}`;
}

// What the server's next question would do to the document; `ask` writes it as `asked` does.
export function problemAfterAsking(text, ask = asked) {
  let after;
  try {
    after = JSON.parse(ask(text, NEXT.messageId, NEXT.questionContent, NEXT.questionTimestamp));
  } catch (error) {
    return `the server could not ask: ${error.message}`;
  }
  const before = JSON.parse(text);
  const wanted = [...(before.messages ?? []), NEXT];
  if (!isDeepStrictEqual(after.messages, wanted)) return "the server's next question would not leave the messages whole";
  if (after.status !== "waiting_parent_reply") return `the server's next question would leave status ${after.status}`;
  if (isDeepStrictEqual(after, { ...before, messages: wanted, status: after.status })) return null;
  return "the server's next question would change other keys";
}

function problemOf(file) {
  let bytes;
  let text;
  let document;
  try {
    bytes = readFileSync(file);
    text = utf8.decode(bytes);
    document = JSON.parse(text);
  } catch (error) {
    return `unreadable: ${error.message}`;
  }
  const written = Buffer.from(JSON.stringify(document, null, 2));
  if (!bytes.equals(written)) return firstDifference(bytes, written);
  const verdict = metaSchema.safeParse(document);
  if (verdict.success) return problemAfterAsking(text);
  return verdict.error.issues.map((issue) => `${issue.path.join(".") || "document"}: ${issue.message}`).join("; ");
}

function main() {
  let bad = 0;
  for (const file of readFileSync(0, "utf8").split("\n").filter(Boolean)) {
    const problem = problemOf(file);
    if (problem === null) continue;
    bad += 1;
    console.log(JSON.stringify({ file, problem }));
  }
  process.exitCode = bad === 0 ? 0 : 1;
}

if (process.argv[1] && realpathSync(process.argv[1]) === fileURLToPath(import.meta.url)) main();
