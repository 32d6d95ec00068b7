// subagent for TypeScript programs: typed functions over the command line, one process a call, never a shell.
// Needs `subagent` on PATH. A worker is told which run it is by SUBAGENT_RUN_ID, as the command itself is.

import { execFile, type ExecFileException } from "node:child_process";
import { promisify } from "node:util";
import type { MetaDocument, MetaMessage, RunStatus } from "./subagent.js";

/** Seconds, or a text such as `250ms`, `90s`, `5m`, `2h`. */
export type Time = number | string;

export interface AskOptions {
  /** Two to four possible answers. */
  options?: readonly string[];
  /** The answer if nobody gives one before the deadline; may be an option's number. */
  default?: string;
  /** When it is too late for an answer; a day unless told otherwise. */
  deadline?: Time;
  /** How long to wait here; five minutes unless told otherwise. The question goes on after that. */
  timeout?: Time;
}

/** A question with what became of it. Unlike in MetaMessage, the options are apart and no answer is null. */
export interface Question
  extends Pick<MetaMessage, "messageId" | "questionContent" | "questionTimestamp" | "messageStatus"> {
  /** Of an expired question the sentence that says so. */
  answerContent: string | null;
  answerTimestamp: string | null;
  state: "PENDING" | "ANSWERED" | "RETRIEVED" | "EXPIRED";
  options: string[];
}

/** What `ask --wait` prints: `answer` is null where the question expired. */
export interface AskedQuestion extends Question {
  answer: string | null;
  runId: string;
}

export interface Note {
  at: string;
  text: string;
}

export interface Told extends Note {
  runId: string;
  clock: string;
  type: "told";
}

/** A question that waits for an answer. */
export interface PendingQuestion {
  message_id: string;
  question: string;
  timestamp: string;
  run_id: string;
  agent_name: string | null;
  expires_at: string;
  /** The command that answers it, for people. */
  reply: string;
  options?: string[];
  default?: string;
}

export interface Replied {
  success: true;
  message: string;
  runId: string;
  messageIds: string[];
  updatedMetadata: MetaDocument;
}

/** The status, or what is meant by `error`. */
export type RunState = RunStatus | "cancelled" | "timed_out" | "lost";

/** How an earlier attempt of a run that was resumed or tried again ended: with a result or with an error. */
export interface Attempt {
  /** Counted from 1. */
  attempt: number;
  state: RunState;
  kind: string | null;
  result?: string | null;
  error?: string | null;
  artifacts: string[];
  tools: string[];
  exitCode: number | null;
  startTime: string | null;
  endTime: string | null;
}

/** A run in full: the document, but with questions as above, and what the document has no room for. */
export interface Run
  extends Pick<
    MetaDocument,
    "agentName" | "command" | "startTime" | "exitCode" | "endTime" | "summary" | "lastUpdated"
  > {
  runId: string;
  status: RunStatus;
  /** Left out until the first question. */
  messages?: Question[];
  state: RunState;
  kind: string | null;
  /** Whether its process is there; null where somebody else started it, so that it is not known. */
  alive: boolean | null;
  /** Processes that were left behind when the one that looks after the run was killed: `subagent cancel` ends them. */
  orphans: number[];
  /** Which attempt this is, from 1, and how those before it ended. */
  attempt: number;
  attempts: Attempt[];
  name: string | null;
  /** What the agent is among those that work on something together. */
  type: string | null;
  model: string | null;
  /** JSON Schemas of what it is given and of its result. */
  inputSchema: Record<string, unknown> | null;
  outputSchema: Record<string, unknown> | null;
  labels: Record<string, string>;
  /** The run that started this one. */
  parentId: string | null;
  /** The group it was spawned with. */
  groupId: string | null;
  /** Neither started by a run nor spawned as one of several. */
  userInitiated: boolean;
  /** The runs that it has started. */
  subAgents: { pending: string[]; completed: string[] };
  createdAt: string | null;
  /** When its process last started or ended. */
  lastActiveAt: string | null;
  notes: Note[];
  logFile: string;
  logDirectory: string;
  instructions: string | null;
  next: string[];
}

/** What `error` holds in the JSON of a refused command. Test `code`: the other texts may change. */
export interface Failure {
  code: string;
  message: string;
  hint: string | null;
  candidates?: string[];
  next?: string;
}

/** A command that was refused or failed. */
export class SubagentError extends Error {
  readonly code: string;

  constructor(
    readonly failure: Failure,
    readonly exitCode: number,
  ) {
    super(failure.message);
    this.name = new.target.name;
    this.code = failure.code;
  }
}

/** The time for waiting is up; what was waited for goes on. `code` is `stalled`, or `no_question` for a parent. */
export class StalledError extends SubagentError {}

/** The question's own time is up: no answer will come. `code` is `expired`. */
export class ExpiredError extends SubagentError {
  constructor(
    readonly question: AskedQuestion,
    exitCode: number,
  ) {
    super({ code: "expired", message: question.answerContent ?? "nobody answered in time", hint: null }, exitCode);
  }
}

/** Asks the parent and waits. Resolves to the answer, which with options is the text of one or something else. */
export async function ask(question: string, asked: AskOptions = {}): Promise<string> {
  const options = (asked.options ?? []).flatMap((option) => flag("option", option));
  const limits = [...flag("default", asked.default), ...flag("deadline", asked.deadline)];
  const words = ["ask", "--wait", ...flag("timeout", asked.timeout), ...limits, ...options, "--", "-"];
  const { printed, exitCode } = await call<AskedQuestion>(words, question);
  if (printed.answer === null) throw new ExpiredError(printed, exitCode);
  return printed.answer;
}

/** Leaves a note for the parent that wants no answer. */
export async function tell(text: string): Promise<Told> {
  return (await call<Told>(["tell", "--", "-"], text)).printed;
}

/** Reports where the worker's run stands; all but `running` end it. Resolves to the run's document. */
export async function update(
  status: "running" | "success" | "completed" | "error",
  summary?: string,
): Promise<MetaDocument> {
  const words = ["update", ...(summary === undefined ? [] : ["--summary=-"]), "--", status];
  return (await call<MetaDocument>(words, summary)).printed;
}

/**
 * The questions that wait for an answer, oldest first: of all runs or of one, now or as soon as there is one.
 * A run that cannot be read does not hide the questions of the others.
 */
export async function pending(
  wanted: { run?: string; wait?: boolean; timeout?: Time } = {},
): Promise<PendingQuestion[]> {
  const patience = [...(wanted.wait ? ["--wait"] : []), ...flag("timeout", wanted.timeout)];
  const run = wanted.run === undefined ? [] : [wanted.run];
  return (await call<PendingQuestion[]>(["pending", ...patience, "--", ...run])).printed;
}

/** Answers a question, named by its id or by its run. With options the answer may be the number of one. */
export async function reply(target: string, answer: string): Promise<Replied> {
  return (await call<Replied>(["reply", "--", target, "-"], answer)).printed;
}

/** A run as it stands. Only looks: an answer that its worker has not picked up stays unread. */
export async function status(run: string): Promise<Run> {
  return (await call<Run>(["status", "--peek", "--", run])).printed;
}

/** One word, so that the value may begin with a dash; none where there is no value. */
function flag(name: string, value: Time | undefined): string[] {
  return value === undefined ? [] : [`--${name}=${value}`];
}

const execute = promisify(execFile);

/** Runs a command with `text` as its input, which stands for `-`: so a text may be anything, and longer than a word. */
async function call<T>(words: string[], text = ""): Promise<{ printed: T; exitCode: number }> {
  const running = execute("subagent", ["--json", ...words], { maxBuffer: Infinity });
  // A command that is refused before it reads its input closes the pipe; what it prints says why.
  running.child.stdin?.on("error", () => {});
  running.child.stdin?.end(`${text}\n`);
  const { stdout, exitCode } = await running.then(({ stdout }) => ({ stdout, exitCode: 0 }), ended);
  const printed: unknown = JSON.parse(stdout);
  const failure = failureIn(printed, exitCode);
  if (failure) throw new (exitCode === 124 ? StalledError : SubagentError)(failure, exitCode);
  return { printed: printed as T, exitCode };
}

/** An exit code other than 0 is an answer too. A program that is missing or was killed gave none. */
function ended(error: ExecFileException & { stdout?: string }): { stdout: string; exitCode: number } {
  if (typeof error.code !== "number" || !error.stdout) throw error;
  return { stdout: error.stdout, exitCode: error.code };
}

/** Judged by the exit code first: a document may hold any key, `error` too. */
function failureIn(printed: unknown, exitCode: number): Failure | undefined {
  if (exitCode === 0) return undefined;
  if (typeof printed === "object" && printed !== null && "error" in printed) return printed.error as Failure;
  // Of an unknown run some commands print an object or a list of their own.
  if (exitCode === 3) return { code: "run_not_found", message: "Run ID not found", hint: null };
  return undefined;
}
