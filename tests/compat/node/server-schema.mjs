// What the server's tools demand of a document, as far as its behaviour shows it. Lenient where meta-schema.mjs is
// strict: unknown keys pass and are then left out, times and ids are any text. The order of the keys here is the
// order in which ask_parent writes them.
import { z } from "zod";

const question = {
  messageId: z.string(),
  questionContent: z.string(),
  questionTimestamp: z.string(),
  // Absent or text: null is refused.
  answerContent: z.string().optional(),
  answerTimestamp: z.string().optional(),
};

const message = z.object({
  ...question,
  messageStatus: z.enum([
    "pending_parent_reply",
    "parent_replied",
    "acknowledged_by_subagent",
    "parent_acknowledged",
  ]),
});

// What check_message_status can give back: there any word will do as the state.
export const deliverable = z.object({ ...question, messageStatus: z.string() });

export const serverSchema = z.object({
  runId: z.string().optional(),
  agentName: z.string().optional(),
  status: z
    .enum(["pending", "running", "completed", "error", "success", "waiting_parent_reply", "parent_replied"])
    .optional(),
  messages: z.array(message).optional(),
  command: z.string().optional(),
  startTime: z.string().optional(),
  endTime: z.string().nullish(),
  exitCode: z.number().nullish(),
  summary: z.string().nullish(),
  lastUpdated: z.string().optional(),
});

// The value as the schema leaves it, or an Error that begins with `complaint` and lists what is wrong.
export function conform(schema, value, complaint) {
  const verdict = schema.safeParse(value);
  if (verdict.success) return verdict.data;
  const issues = verdict.error.issues.map((issue) => ({
    // The server's older zod has its own name for a word that is not in the list.
    code: issue.code === "invalid_value" ? "invalid_enum_value" : issue.code,
    path: issue.path,
    message: issue.message,
  }));
  throw new Error(`${complaint}: ${JSON.stringify(issues)}`);
}
