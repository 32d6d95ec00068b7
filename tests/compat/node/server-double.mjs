// A stand-in for the TypeScript server that shares our runs: the same answers, errors and oddities, and above all
// the same way to touch files. It takes no lock; it reads whole, changes and writes in place, in two steps between
// which anything may happen. Known only from the server's behaviour: where the tests need more than that, it guesses.
//
//   node server-double.mjs [--parallel] [--gap MS] [LOGDIR]
//
// It says {"ready":true,"logDirectory"}, then reads {"id","tool","arguments"} a line and prints {"id","ok":true,
// "result"} or {"id","ok":false,"error"} a line: one after another with MS between them, or all at once.
import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { existsSync, mkdirSync, promises as fs, realpathSync } from "node:fs";
import { homedir, tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as pause } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { conform, deliverable, serverSchema } from "./server-schema.mjs";

const OWN_VERDICTS = ["success", "error"];
const REPORTABLE = ["success", "error", "running", "completed"];
const CONVERSING = ["waiting_parent_reply", "parent_replied"];
const TAIL_LINES = 50;

let logDirectory;

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`Meta file is not valid JSON: ${error.message}`);
  }
}

function written(document) {
  return JSON.stringify(document, null, 2);
}

// The text of the document after ask_parent: what the schema does not know is gone, and a key that was not there
// comes last.
export function asked(documentText, messageId, question, now) {
  const document = conform(serverSchema, parsed(documentText), "Meta file does not match schema");
  document.messages ??= [];
  document.messages.push({
    messageId,
    questionContent: question,
    questionTimestamp: now,
    messageStatus: "pending_parent_reply",
  });
  document.status = "waiting_parent_reply";
  return written(document);
}

function messagesOf(document) {
  return Array.isArray(document.messages) ? document.messages : [];
}

function now() {
  return new Date().toISOString();
}

function fileOf(runId, ending) {
  return join(logDirectory, `${runId}.${ending}`);
}

async function read(runId) {
  try {
    return await fs.readFile(fileOf(runId, "meta.json"), "utf8");
  } catch (error) {
    throw new Error(`Could not read meta file of run ${runId}: ${error.message}`, { cause: error });
  }
}

async function readIfThere(runId) {
  try {
    return await read(runId);
  } catch (error) {
    if (error.cause?.code === "ENOENT") return undefined;
    throw error;
  }
}

async function write(runId, text) {
  await fs.writeFile(fileOf(runId, "meta.json"), text);
}

async function log(runId, text) {
  await fs.appendFile(fileOf(runId, "log"), `[${now()}] ${text}\n`);
}

function demandRun(runId) {
  // Any version and variant, nil and max included.
  if (!/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(runId)) throw new Error("Run ID must be a valid UUID");
}

function demandText(value, name) {
  if (typeof value !== "string" || value === "") throw new Error(`${name} cannot be empty`);
}

function notFound(runId) {
  return { runId, status: "not_found", message: "Run ID not found", logDirectory };
}

async function askParent({ runId, question }) {
  demandRun(runId);
  demandText(question, "Question");
  const messageId = randomUUID();
  const text = await read(runId);
  await write(runId, asked(text, messageId, question, now()));
  const instructions = `Question recorded. Poll check_message_status with runId ${runId} and messageId ${messageId}.`;
  return { messageId, instructions };
}

// The run id is not looked at: what leads out of the log directory is followed.
async function replySubagent({ runId, messageId, answer }) {
  if (typeof answer !== "string") throw new Error("Answer must be text");
  const document = parsed(await read(runId));
  const message = messagesOf(document).find((each) => each?.messageId === messageId);
  if (!message) throw new Error(`Message with ID ${messageId} not found in run ${runId}`);
  if (message.messageStatus !== "pending_parent_reply") {
    throw new Error(`Message status is not 'pending_parent_reply': found '${message.messageStatus}'`);
  }
  message.answerContent = answer;
  message.answerTimestamp = now();
  message.messageStatus = "parent_replied";
  document.status = "parent_replied";
  await write(runId, written(document));
  return { success: true, message: "Parent reply recorded and metadata updated.", updatedMetadata: document };
}

async function checkMessageStatus({ runId, messageId }) {
  demandRun(runId);
  demandText(messageId, "Message ID");
  const document = parsed(await read(runId));
  if (!Array.isArray(document.messages)) throw new Error(`No messages found for runId ${runId}`);
  const message = document.messages.find((each) => each?.messageId === messageId);
  if (!message) throw new Error(`Message with ID ${messageId} not found in run ${runId}`);
  const seen = { ...message };
  if (message.messageStatus === "parent_replied") {
    message.messageStatus = "acknowledged_by_subagent";
    document.status = "running";
    await write(runId, written(document));
  }
  // Only now, so an answer that cannot be given back is consumed all the same.
  const delivered = conform(deliverable, seen, `Message ${messageId} cannot be delivered`);
  const text = [`Message ID: ${messageId}`, `Message Status: ${delivered.messageStatus}`, ...interaction(delivered)];
  return { text: text.join("\n"), ...delivered };
}

// An empty answer counts as none.
function interaction(message) {
  return [
    `Question: ${message.questionContent}`,
    `Asked At: ${message.questionTimestamp}`,
    `Answer: ${message.answerContent || "Not yet answered"}`,
    `Answered At: ${message.answerTimestamp || "N/A"}`,
  ];
}

function newest(document, ...states) {
  return messagesOf(document).findLast((each) => states.includes(each?.messageStatus));
}

function conversation(document) {
  if (document.status === "waiting_parent_reply") {
    const open = newest(document, "pending_parent_reply");
    if (!open) return ["Waiting for the parent's reply."];
    const how = `Answer with reply_subagent and messageId ${open.messageId}.`;
    return ["Pending Question:", `Question: ${open.questionContent}`, `Asked At: ${open.questionTimestamp}`, how];
  }
  if (document.status !== "running" && document.status !== "parent_replied") return [];
  const answered = newest(document, "parent_replied", "acknowledged_by_subagent");
  return answered ? ["Last Interaction:", ...interaction(answered)] : [];
}

function statusText(document) {
  return [
    `Run ID: ${document.runId || "N/A"}`,
    `Agent Name: ${document.agentName || "N/A"}`,
    `Status: ${document.status || "N/A"}`,
    `Exit Code: ${document.exitCode ?? "N/A"}`,
    `Start Time: ${document.startTime || "N/A"}`,
    `End Time: ${document.endTime || "N/A"}`,
    `Summary: ${document.summary || "N/A"}`,
    ...conversation(document),
    ...(document.status === "running" ? ["Note: wait 30 seconds before you ask for the status again."] : []),
  ].join("\n");
}

async function checkSubagentStatus({ runId }) {
  demandRun(runId);
  const content = await readIfThere(runId);
  if (content === undefined) return notFound(runId);
  const document = parsed(content);
  const text = statusText(document);
  const talks = CONVERSING.includes(document.status) ? { messages: document.messages ?? [] } : {};
  return { ...document, ...talks, text, logFile: fileOf(runId, "log"), logDirectory };
}

async function updateSubagentStatus({ runId, status, summary }) {
  demandRun(runId);
  if (!REPORTABLE.includes(status)) throw new Error(`Status must be one of ${REPORTABLE.join(", ")}`);
  // Talk where only answers belong.
  process.stdout.write(`Status of ${runId} is now ${status}: ${summary ?? "no summary"}\n`);
  const content = await readIfThere(runId);
  if (content === undefined) return notFound(runId);
  const document = parsed(content);
  document.status = status;
  if (summary !== undefined) document.summary = summary;
  document.lastUpdated = now();
  if (status !== "running") document.endTime ||= now();
  await write(runId, written(document));
  await log(runId, `Status updated to: ${status}`);
  if (summary !== undefined) await log(runId, `Summary: ${summary}`);
  return document;
}

async function getSubagentLogs({ runId }) {
  demandRun(runId);
  try {
    return { text: await fs.readFile(fileOf(runId, "log"), "utf8") };
  } catch (error) {
    if (error.code !== "ENOENT") throw error;
    return { text: `No logs found for run ID: ${runId}` };
  }
}

function promptFor(runId, input) {
  return [
    `You are a sub-agent. Your run ID is ${runId}; name it in every call.`,
    "Report how your work stands and how it ended with the tool update_subagent_status.",
    "Where you need a decision, ask with the tool ask_parent and wait for the answer.",
    "",
    "---",
    "",
    input,
  ].join("\n");
}

async function runAgent({ agentName, input, cwd, command }) {
  if (typeof agentName !== "string" || agentName === "") throw new Error(`Unknown subagent: ${agentName}`);
  demandText(input, "Input");
  demandText(cwd, "cwd");
  const runId = randomUUID();
  const prompt = promptFor(runId, input);
  const document = {
    runId,
    agentName,
    command: command ? command.join(" ") : agentName,
    startTime: now(),
    status: "running",
    exitCode: null,
    endTime: null,
    summary: null,
  };
  await fs.writeFile(fileOf(runId, "prompt.md"), prompt);
  await log(runId, `Starting ${agentName} with input: ${input}`);
  await log(runId, `Command: ${document.command}`);
  await write(runId, written(document));
  if (command) launch(runId, command, cwd, prompt);
  return { runId };
}

function launch(runId, [program, ...args], cwd, prompt) {
  const child = spawn(program, args, { cwd, stdio: "pipe" });
  // Lines of the log are written one after another, and the exit comes after the last of them.
  let before = Promise.resolve();
  const then = (step) => {
    before = before.then(step).catch((error) => console.error(error.message));
  };
  const note = (text) => then(() => log(runId, text));
  child.on("error", (error) => {
    // A working directory that does not exist takes the whole server down; the run says "running" for ever.
    if (!existsSync(cwd)) throw error;
    // No shell stands between, so what it would say is said here.
    note(`[stderr] sh: ${program}: ${error.code === "ENOENT" ? "not found" : "cannot be run"}`);
  });
  // After a failed start this comes too, with a negative code.
  child.on("close", (code) => then(() => exit({ runId, code: code < 0 ? 127 : code })));
  follow(child.stdout, (line) => note(`[stdout] ${line}`));
  follow(child.stderr, (line) => note(`[stderr] ${line}`));
  // A child need not read its prompt.
  child.stdin.on("error", () => {});
  child.stdin.end(prompt);
}

function follow(stream, tell) {
  let rest = "";
  stream.setEncoding("utf8");
  stream.on("data", (part) => {
    const lines = (rest + part).split("\n");
    rest = lines.pop();
    lines.forEach(tell);
  });
  stream.on("end", () => rest && tell(rest));
}

// What follows the end of a child: its own "success" or "error" stands, every other word gives way.
async function exit({ runId, code }) {
  demandRun(runId);
  await log(runId, `Process exited with code ${code}`);
  const lines = (await fs.readFile(fileOf(runId, "log"), "utf8")).trimEnd().split("\n");
  const document = parsed(await read(runId));
  if (!OWN_VERDICTS.includes(document.status)) {
    document.status = code === 0 ? "success" : "error";
    if (code !== 0) document.summary ||= lines.slice(-TAIL_LINES).join("\n");
  }
  document.exitCode = code;
  document.endTime = now();
  await write(runId, written(document));
  return document;
}

const TOOLS = {
  run_agent: runAgent,
  ask_parent: askParent,
  reply_subagent: replySubagent,
  check_message_status: checkMessageStatus,
  check_subagent_status: checkSubagentStatus,
  update_subagent_status: updateSubagentStatus,
  get_subagent_logs: getSubagentLogs,
  exit,
};

function chosenDirectory(wanted) {
  const usual = join(homedir(), ".config", "mcp-server-subagent", "logs");
  const places = [usual, join(process.cwd(), "logs"), join(tmpdir(), "mcp-server-subagent", "logs")];
  for (const place of wanted ? [wanted] : places) {
    try {
      mkdirSync(place, { recursive: true });
      return place;
    } catch {
      // The next one, then.
    }
  }
  throw new Error("no log directory can be made");
}

function say(value) {
  process.stdout.write(`${JSON.stringify(value)}\n`);
}

async function answer(line) {
  let id = null;
  try {
    const request = JSON.parse(line);
    id = request.id;
    if (!Object.hasOwn(TOOLS, request.tool)) throw new Error(`Unknown tool: ${request.tool}`);
    say({ id, ok: true, result: await TOOLS[request.tool](request.arguments ?? {}) });
  } catch (error) {
    say({ id, ok: false, error: error.message });
  }
}

function serve() {
  const options = { parallel: { type: "boolean" }, gap: { type: "string", default: "0" } };
  const { values, positionals } = parseArgs({ options, allowPositionals: true });
  const gap = Number(values.gap);
  logDirectory = chosenDirectory(positionals[0]);
  let before = Promise.resolve();
  // Everything is read at once, so that whoever sends many requests never waits for the answers.
  createInterface({ input: process.stdin }).on("line", (line) => {
    if (values.parallel) answer(line);
    else before = before.then(() => answer(line)).then(() => (gap > 0 ? pause(gap) : undefined));
  });
  say({ ready: true, logDirectory });
}

if (process.argv[1] && realpathSync(process.argv[1]) === fileURLToPath(import.meta.url)) serve();
