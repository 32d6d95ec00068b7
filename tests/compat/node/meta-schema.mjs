// What a `.meta.json` of ours may hold: everything in here is accepted by the server's own schema, and where
// that schema leaves room we take the narrower side (known keys only, exact timestamps, answers that fit the
// state of their question).
import { z } from "zod";

const runStatus = z.enum([
  "pending",
  "running",
  "completed",
  "error",
  "success",
  "waiting_parent_reply",
  "parent_replied",
]);

const messageStatus = z.enum([
  "pending_parent_reply",
  "parent_replied",
  "acknowledged_by_subagent",
  "parent_acknowledged",
]);

const timestamp = z.iso.datetime({ precision: 3 });

// guid, not uuid: the server takes any version and variant.
const id = z.guid();

const message = z
  .strictObject({
    messageId: id,
    questionContent: z.string().min(1),
    questionTimestamp: timestamp,
    // Absent or text, never null: null makes the server consume an answer without delivering it.
    answerContent: z.string().optional(),
    answerTimestamp: timestamp.optional(),
    messageStatus,
  })
  .superRefine((value, context) => {
    const parts = ["answerContent", "answerTimestamp"].filter((key) => value[key] !== undefined);
    const wanted = value.messageStatus === "pending_parent_reply" ? 0 : 2;
    if (parts.length !== wanted) {
      const found = parts.length === 0 ? "neither" : parts.join(" and ");
      context.addIssue({ code: "custom", message: `${value.messageStatus} with ${found} of the answer's keys` });
    }
    // The server never writes this word; ours means "expired" and must say so to whoever polls.
    if (value.messageStatus === "parent_acknowledged" && !value.answerContent?.startsWith("[expired]")) {
      context.addIssue({ code: "custom", message: "parent_acknowledged without a text that begins with [expired]" });
    }
  });

export const metaSchema = z
  .strictObject({
    runId: id.optional(),
    agentName: z.string().optional(),
    status: runStatus.optional(),
    messages: z.array(message).optional(),
    command: z.string().optional(),
    startTime: timestamp.optional(),
    endTime: timestamp.nullish(),
    exitCode: z.number().nullish(),
    summary: z.string().nullish(),
    lastUpdated: timestamp.optional(),
  })
  .superRefine((value, context) => {
    const ids = (value.messages ?? []).map((each) => each.messageId.toLowerCase());
    if (new Set(ids).size !== ids.length) {
      context.addIssue({ code: "custom", message: "two messages have the same messageId" });
    }
  });
