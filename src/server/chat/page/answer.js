// Requests an answer and takes in what comes of it: text, thoughts, tokens and the places of these in
// memory.

import { streamChat } from './api.js';
import { countText, plural, rateText } from './dom.js';

const kSpeedOver = 3000;   // ms over which the speed of an answer is measured
export const kKeepEvery = 2000;  // ms between saves: closing the page loses no more of an answer

// Requests an answer and handles its events.
// page: {view, grown, moved, save}, functions that draw and store the received text.
export async function take(body, { controller, conversation, node, times }, page) {
  const before = node.thoughtTokens ?? 0;
  let thoughtTokens = 0;
  let kept_at = performance.now();
  for await (const event of streamChat(body, controller.signal)) {
    node.request = event.id;
    const view = page.view();
    const choice = event.choices[0];
    const { delta = {}, finish_reason } = choice ?? {};
    const own = event.ebb ?? {};
    if (event.prompt_progress) {
      const { total, processed } = event.prompt_progress;
      if (processed < total) view?.showWait(`Reading ${Math.round(100 * processed / total)} % of ${plural(total, 'token')}`);
    }
    if (own.prompt) {
      node.prompt = own.prompt;
      node.promptTokens = own.prompt.length;
    }
    for (const { id, text, guessed } of own.tokens ?? []) {
      if (guessed) (node.trace.guessed ??= []).push(node.trace.ids.length);
      node.trace.ids.push(id);
      node.trace.texts.push(text);
    }
    if (own.tokens) {
      times.push([performance.now(), node.trace.ids.length]);
      while (times.length > 2 && times.at(-1)[0] - times[0][0] > kSpeedOver) times.shift();
      page.grown();
    }
    const thought = delta.reasoning_content ?? '';
    if (thought !== '') {
      thoughtTokens += own.tokens?.length ?? 0;
      node.thoughtTokens = before + thoughtTokens;
      node.thought += thought;
      view?.addThought(thought);
    }
    if (delta.content) {
      node.text += delta.content;
      view?.addText(delta.content);
    }
    if (own.memory) {
      node.memory = own.memory;
      page.moved();
    }
    if (finish_reason) {
      node.finish = finish_reason;
      node.cut = finish_reason === 'length';
      node.speed = event.timings?.predicted_per_second;
      if (own.seed !== undefined) node.seed = own.seed;
      if (own.session) {
        node.session = own.session.id;
        conversation.sessions[own.session.id] = node.id;
      }
    }
    if (performance.now() - kept_at > kKeepEvery) {
      kept_at = performance.now();
      page.save();
    }
    if (event.usage) {
      node.tokens = event.usage.completion_tokens;
      node.cachedTokens = event.usage.prompt_tokens_details.cached_tokens;
      node.thoughtTokens = before + event.usage.completion_tokens_details.reasoning_tokens;
    }
  }
}

// Says how much of the context is used, and while an answer comes (`run`), how fast it comes.
export function usageOf(node, run, context) {
  const used = node?.promptTokens === undefined ? node?.memory?.tokens : node.promptTokens + node.trace.ids.length;
  const parts = used && context ? [`${countText(used)} of ${plural(context, 'token')}`] : [];
  const [first, last] = [run?.times[0], run?.times.at(-1)];
  if (last?.[0] > first?.[0]) {
    parts.push(rateText((last[1] - first[1]) / (last[0] - first[0]) * 1000));
  }
  return { text: parts.join(' · '), isNearlyFull: used > 0.9 * context };
}
