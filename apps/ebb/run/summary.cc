#include "apps/ebb/run/summary.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "apps/common/lossless_record.h"
#include "apps/common/report.h"
#include "src/base/text/size_text.h"

namespace ebb::cli {
namespace {

// Names a source of guesses in the summary.
std::string_view TitleOf(Speculation source) {
  switch (source) {
    case Speculation::kMtp:
      return "MTP layer";
    case Speculation::kEagle3:
      return "EAGLE-3 head";
    case Speculation::kAssistant:
      return "assistant";
    case Speculation::kDflash:
      return "DFlash head";
    default:
      return "draft model";
  }
}

double Rate(double count, double seconds) { return seconds > 0 ? count / seconds : 0; }

// Counts the rows that the session keeps. A lossless session keeps every row, some of them in two
// tiers; each counts once.
int64_t RowsKept(const Session& session, const ModelShape& shape, const CacheAccounting& cache) {
  if (session.lossless_report() != nullptr) {
    return static_cast<int64_t>(session.tokens().size()) * shape.NumStreams();
  }
  int64_t rows = 0;
  for (const TierAccounting& tier : cache.tiers) rows += tier.rows;
  return rows;
}

nlohmann::ordered_json TierRecords(const CacheAccounting& cache, const Engine& engine) {
  auto records = nlohmann::ordered_json::array();
  for (const Tier tier : {Tier::kT0, Tier::kT1, Tier::kT2}) {
    const TierAccounting& of_tier = cache.tiers[static_cast<int>(tier)];
    records.push_back({{"name", TierName(tier)},
                       {"rows", of_tier.rows},
                       {"bytes", of_tier.page_bytes},
                       {"peak_bytes", engine.arena_accounting(tier).peak_bytes}});
  }
  records.push_back({{"name", TierName(Tier::kT3)},
                     {"rows", cache.rows_evicted},
                     {"bytes", 0},
                     {"peak_bytes", 0}});
  return records;
}

nlohmann::ordered_json DeviceRecord(const DeviceReport& device) {
  nlohmann::ordered_json record = {{"name", device.name}};
  if (device.weight_bytes > 0) {
    record["row_bytes"] = device.row_bytes;
    record["weight_bytes"] = device.weight_bytes;
  }
  if (device.decode_steps == 0) return record;
  const auto steps = static_cast<double>(device.decode_steps);
  record["t1_mode"] = T1ModeName(device.t1_mode);
  record["decode_steps"] = device.decode_steps;
  record["step_s"] = device.decode_seconds / steps;
  return record;
}

// Counts the rows of a full cache of `num_tokens` tokens, which evicts only rows that leave a
// window.
int64_t RowsOfFullCache(const ModelShape& shape, int64_t num_tokens) {
  int64_t rows = 0;
  for (int layer = 0; layer < shape.num_layers; ++layer) {
    const int64_t window = shape.Window(layer);
    rows += shape.NumKvHeads(layer) * (window > 0 ? std::min(num_tokens, window) : num_tokens);
  }
  return rows;
}

// Returns the bytes of a full cache of `num_tokens` tokens in whole pages, as the bytes of tiers
// are; of a model with windows, in rows.
double BytesOfFullCache(const Setup& setup, int num_tokens, double row_bytes) {
  const ModelShape& shape = setup.model->shape();
  if (shape.SmallestWindow() == 0) {
    const auto needs = setup.engine->CountNeeds({}, num_tokens, num_tokens);
    if (needs.ok()) return static_cast<double>(needs->t0_bytes);
  }
  return row_bytes * static_cast<double>(RowsOfFullCache(shape, num_tokens));
}

// Returns a line with the tokens and the memory of each tier of the sequence: "[memory: 940 of
// 8,192 tokens; T0 310 tokens, 1.8 MiB; T1 630 tokens, 3.6 MiB in a file; a full cache: 5.4 MiB]".
std::string MemoryText(const Setup& setup) {
  const Session& session = *setup.session;
  const ModelShape& shape = setup.model->shape();
  const CacheAccounting cache = session.accounting();
  const auto num_tokens = static_cast<int64_t>(session.tokens().size());
  const auto in_tokens = [&](int64_t rows) { return InTokens(rows, shape); };
  std::string text = fmt::format("[memory: {} of {} tokens", WithCommas(num_tokens),
                                 WithCommas(session.context()));
  const auto& tiers = setup.engine->options().tiers;
  const bool in_file = tiers.has_value() && tiers->t1 == T1Place::kFile;
  double row_bytes = 0, in_memory = 0;
  for (const Tier tier : {Tier::kT0, Tier::kT1, Tier::kT2}) {
    const TierAccounting& of_tier = cache.tiers[static_cast<int>(tier)];
    if (of_tier.rows == 0 && tier != Tier::kT0) continue;
    if (row_bytes == 0 && tier != Tier::kT2 && of_tier.rows > 0) {
      row_bytes = static_cast<double>(of_tier.row_bytes) / static_cast<double>(of_tier.rows);
    }
    if (tier != Tier::kT1 || !in_file) in_memory += static_cast<double>(of_tier.page_bytes);
    text += fmt::format("; {} {} tokens, {}{}", TierName(tier), WithCommas(in_tokens(of_tier.rows)),
                        SizeText(static_cast<double>(of_tier.page_bytes)),
                        tier == Tier::kT2              ? " compressed"
                        : tier == Tier::kT1 && in_file ? " in a file"
                                                       : "");
  }
  // A full cache, too, evicts the rows that leave a sliding window, so these do not count as
  // evicted.
  const int64_t full_rows = RowsOfFullCache(shape, num_tokens);
  const int64_t evicted = std::max<int64_t>(0, full_rows - RowsKept(session, shape, cache));
  if (evicted > 0) text += fmt::format("; {} tokens evicted", WithCommas(in_tokens(evicted)));
  const bool is_full = evicted == 0 && cache.tiers[1].rows == 0 && cache.tiers[2].rows == 0;
  if (is_full) {
    text += ", the full cache";
  } else if (row_bytes > 0) {
    const double full_bytes = BytesOfFullCache(setup, static_cast<int>(num_tokens), row_bytes);
    text += fmt::format("; a full cache would take {}", SizeText(full_bytes));
    const double saved = 100 * (1 - in_memory / full_bytes);
    if (saved >= 1) text += fmt::format(" ({:.0f} % of it saved)", saved);
  }
  return text + "]\n";
}

}  // namespace

double DecodeRate(const GenerateResult& result) {
  return Rate(result.decode_steps, result.seconds);
}

std::string JsonSummary(const RunFigures& figures, const Setup& setup) {
  const CacheAccounting cache = setup.session->accounting();
  const ArenaAccounting arena = setup.engine->arena_accounting();
  nlohmann::ordered_json record = {
      {"prompt_tokens", figures.prompt_tokens},
      {"generated_tokens", figures.result.generated_tokens},
      {"thought_tokens", figures.result.thought_tokens},
      {"finish_reason", FinishReasonName(figures.result.finish_reason)},
      {"tokens_per_s", DecodeRate(figures.result)},
      {"prompt_tokens_per_s", Rate(figures.prompt_tokens, figures.prompt_seconds)},
      {"time_to_first_token_s", figures.time_to_first_token_seconds},
      {"policy", setup.session->policy().name},
      {"rows_kept", RowsKept(*setup.session, setup.model->shape(), cache)},
      {"rows_evicted", cache.rows_evicted},
      {"kv_bytes", arena.reserved_bytes},
      {"kv_used_bytes", arena.used_bytes},
      {"kv_peak_bytes", arena.peak_bytes},
      {"kv_table_bytes", cache.table_bytes},
      {"state_bytes", cache.state_bytes},
      {"kv_staging_bytes", cache.staging_bytes},
      {"kv_staging_peak_bytes", cache.staging_bytes - cache.newest.page_bytes +
                                    setup.engine->newest_accounting().peak_bytes},
      {"tiers", TierRecords(cache, *setup.engine)},
      {"moves",
       {{"bytes_down", cache.moves.bytes_down},
        {"bytes_up", cache.moves.bytes_up},
        {"rows_down", cache.moves.rows_down},
        {"rows_up", cache.moves.rows_up},
        {"seconds", cache.moves.seconds}}},
      {"selection", SelectionRecord(cache.selection)},
      {"device", DeviceRecord(setup.engine->device_report())},
      {"peak_rss_bytes", PeakResidentBytes()},
      {"threads", setup.engine->options().threads},
      {"attention", setup.engine->attention_name()},
      {"seed", figures.seed},
      {"logits_hash", fmt::format("{:016x}", setup.session->logits_hash())},
  };
  if (setup.session->lossless_report() != nullptr) {
    AddLosslessFigures(figures.lossless, figures.result.decode_steps, &record);
  }
  if (setup.session->lossless_report() == nullptr) {
    const SpeculationReport& guesses = figures.speculation;
    auto& speculation = record["speculation"];
    speculation = {{"drafted", guesses.drafted},
                   {"accepted", guesses.accepted},
                   {"verify_steps", guesses.verify_steps}};
    for (const Speculation source : kDraftSources) {
      const bool is_own = source == guesses.draft_source;
      const std::string_view name = SpeculationName(source);
      speculation[fmt::format("drafted_by_{}", name)] = is_own ? guesses.drafted_by_source : 0;
      speculation[fmt::format("accepted_by_{}", name)] = is_own ? guesses.accepted_by_source : 0;
    }
    speculation["obstacle"] = setup.session->speculation_obstacle();
  }
  return record.dump();
}

std::string HumanSummary(const RunFigures& figures, const Setup& setup) {
  const CacheAccounting cache = setup.session->accounting();
  const GenerateResult& result = figures.result;
  std::string text = "[";
  // An answer that continues a cut-off answer reads no prompt, so there is no rate to show.
  if (figures.prompt_tokens > 0) {
    text += fmt::format("{} tokens read at {:.0f}/s, ", figures.prompt_tokens,
                        Rate(figures.prompt_tokens, figures.prompt_seconds));
  }
  text += fmt::format("{} generated at {:.1f}/s, ended by: {}]\n", result.generated_tokens,
                      DecodeRate(result), FinishReasonName(result.finish_reason));
  text += MemoryText(setup);
  if (const SelectionAccounting& selection = cache.selection; selection.rows_unread > 0) {
    text += fmt::format("[selective reading: {}]\n", SelectionText(selection));
  }
  const bool is_lossless = setup.session->lossless_report() != nullptr;
  if (const SpeculationReport& guesses = figures.speculation; guesses.drafted > 0 && !is_lossless) {
    text += fmt::format("[speculation: {} of {} guessed tokens accepted in {} steps{}]\n",
                        guesses.accepted, guesses.drafted, guesses.verify_steps,
                        guesses.drafted_by_source > 0
                            ? fmt::format("; {} of {} were the {}'s", guesses.accepted_by_source,
                                          guesses.drafted_by_source, TitleOf(guesses.draft_source))
                            : "");
  }
  if (const std::string& why = setup.session->speculation_obstacle(); !why.empty()) {
    text += fmt::format("[no speculation: {}]\n", why);
  }
  if (is_lossless) {
    const LosslessReport& lossless = figures.lossless;
    text += fmt::format(
        "[lossless: {} of {} drafted tokens accepted, {} of them looked up; {} verifying steps]\n",
        lossless.accepted, lossless.drafted, lossless.accepted_looked_up, lossless.verify_steps);
  }
  return text;
}

}  // namespace ebb::cli
