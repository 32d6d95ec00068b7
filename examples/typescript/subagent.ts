// Files of a run, and what `dispatch` takes. Generated: changes here get lost.

/**
 * One run of a sub-agent, as its `.meta.json` shows it. Every key may be left
 * out.
 */
export interface MetaDocument {
  /** Identifies the run; a UUID. */
  runId?: string;
  /** Which agent runs. */
  agentName?: string;
  /** The command line that was started, for people. */
  command?: string;
  /** When the run was made, e.g. 2025-01-31T12:00:00.000Z. */
  startTime?: string;
  /** Where the run stands. */
  status?: RunStatus;
  /** How the agent's process ended; null while it has not. */
  exitCode?: number | null;
  /** When the run ended; null while it has not. */
  endTime?: string | null;
  /**
   * What came of the run, in words; null until somebody says so. Starts with
   * the kind of failure in brackets where there is one, e.g. `[cancelled]`.
   */
  summary?: string | null;
  /** The worker's questions, oldest first; left out until the first. */
  messages?: MetaMessage[];
  /** When a status or a summary was last reported. */
  lastUpdated?: string;
  [key: string]: unknown;
}

/**
 * Where the question stands: unanswered, answered, answer fetched by the
 * worker. The last word, `parent_acknowledged`, marks a question that expired
 * without an answer.
 */
export type MessageStatus =
  | "pending_parent_reply"
  | "parent_replied"
  | "acknowledged_by_subagent"
  | "parent_acknowledged";

/**
 * One question of the worker to its parent and, once it is there, the answer.
 */
export interface MetaMessage {
  /** Identifies the question; a UUID. */
  messageId: string;
  /** What the worker asks. */
  questionContent: string;
  /** When it was asked, e.g. 2025-01-31T12:00:00.000Z. */
  questionTimestamp: string;
  /**
   * What the parent answered. Left out, never null, while there is no answer.
   * Of an expired question it starts with `[expired]`.
   */
  answerContent?: string;
  /** When it was answered or expired. Left out, never null, until then. */
  answerTimestamp?: string;
  /** Where the question stands. */
  messageStatus: MessageStatus;
  [key: string]: unknown;
}

/**
 * Where the run stands. `completed` and `success` both mean that it ended well;
 * `error` also covers cancelled, timed out and lost, which the head of
 * `summary` tells apart.
 */
export type RunStatus =
  | "pending"
  | "running"
  | "waiting_parent_reply"
  | "parent_replied"
  | "completed"
  | "success"
  | "error";

/** What was asked of a run. Written once, when the run is made. */
export interface RunSpec {
  /** The version of this format. */
  version: 1;
  /** Identifies the run; a UUID. */
  runId: string;
  /** Which agent was asked for. */
  agentName: string;
  /**
   * Where that agent is defined; null for a command of the caller's own, or
   * none.
   */
  agentSource?: string | null;
  /** What the agent is to do, in words. */
  task: string;
  /**
   * The command that is run, word by word; null where somebody else starts the
   * process.
   */
  argv: string[] | null;
  /** The file that is run, which later attempts run too. */
  program?: string | null;
  /** The directory the agent works in. */
  cwd: string;
  /** The model that was asked for. */
  model?: string | null;
  /** Words that were added to the agent's command line. */
  agentArgs?: string[];
  /**
   * Whether the agent is to look only, or to do the work; null where nobody
   * said.
   */
  mode?: "explore" | "work" | null;
  /** Whether the agent got its task alone, without a word on how to ask. */
  raw?: boolean;
  /** Whether the agent gets its token in a file. */
  tokenFile?: boolean;
  /** The agent's session, where we chose its id. */
  sessionId?: string | null;
  /** A name by which people call the run. */
  name: string | null;
  /** What the agent is among those that work on something together. */
  type?: "critic" | "grader" | "optimizer" | "generic";
  /** The JSON Schema of what it is given. */
  inputSchema?: Record<string, unknown> | null;
  /** The JSON Schema of its result. */
  outputSchema?: Record<string, unknown> | null;
  /** The run that started this one; null where a person did. */
  parentId: string | null;
  /** The fan-out this run belongs to. */
  groupId: string | null;
  /**
   * How deep the run is nested: 1 for what a person starts, and one more for
   * each agent in between.
   */
  depth: number;
  /**
   * How deep the runs of this tree may be nested; null for a run of an older
   * release.
   */
  maxDepth?: number | null;
  /** How long the run may take; null for no limit. */
  timeoutSeconds: number | null;
  /** Hash of the run's token. The token itself is stored nowhere. */
  tokenHash: string;
  /** What was asked of a throwaway child, and the session of its parent. */
  dispatch?: Record<string, unknown> | null;
  /** Free words by which runs can be found again. */
  labels: Record<string, string>;
  /** The idempotency key: asking again with the same key finds this run. */
  key: string | null;
  /** When the run was made, e.g. 2025-01-31T12:00:00.000Z. */
  createdAt: string;
  [key: string]: unknown;
}

/**
 * One event in the life of a run: one line of its journal. Further keys depend
 * on `type`.
 */
export interface JournalEntry {
  /** The place of this event in the journal, from 1. */
  seq: number;
  /** When it happened, e.g. 2025-01-31T12:00:00.000Z. */
  at: string;
  /** The same moment on a clock that nobody can set, good within one boot. */
  clock?: string;
  /** What happened. */
  type: string;
  /**
   * `meta` where another program wrote it into `.meta.json` and it was taken
   * over.
   */
  origin?: string;
  /**
   * On the last event of a change: digest of the `.meta.json` that this change
   * wrote.
   */
  meta?: string;
  /** Checksum of the line in eight hexadecimal digits, lower case. */
  crc: string;
  [key: string]: unknown;
}

/**
 * What is asked of a throwaway child. Blanks around texts are taken off; other
 * keys are refused.
 */
export interface DispatchRequest {
  /** Whether the child does a step of the parent's plan, or anything else. */
  mode: "plan_step" | "ad_hoc";
  /** Where the child's prompt belongs; handed on as it is. */
  prompt_ns?: string;
  /** Which prompt of that place it is; handed on as it is. */
  prompt_key?: string;
  /** What the child is to do, in ASCII. */
  instructions: string;
  /** What the child is to deliver, a label in ASCII each. */
  expected_artifacts?: string[];
  /**
   * Which step of the plan it is, in ASCII; required for plan_step, dropped for
   * ad_hoc.
   */
  plan_step_id?: string | null;
}
