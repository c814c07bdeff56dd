#include "src/server/monitoring/metrics.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "ebb/types.h"

namespace ebb::server {
namespace {

// Writer collects families of samples in the order in which they are added.
class Writer {
 public:
  void Family(std::string_view name, std::string_view type, std::string_view help) {
    text_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
  }
  template <typename T>
  void Sample(std::string_view name, std::string_view labels, T value) {
    text_ += fmt::format("{}{}{}{} {}\n", name, labels.empty() ? "" : "{", labels,
                         labels.empty() ? "" : "}", value);
  }
  template <typename T>
  void Gauge(std::string_view name, std::string_view help, T value) {
    Family(name, "gauge", help);
    Sample(name, "", value);
  }
  template <typename T>
  void Counter(std::string_view name, std::string_view help, T value) {
    Family(name, "counter", help);
    Sample(name, "", value);
  }
  void Add(std::string_view name, std::string_view help, const Histogram& histogram) {
    Family(name, "histogram", help);
    uint64_t count = 0;
    for (size_t i = 0; i < histogram.counts().size(); ++i) {
      count += histogram.counts()[i];
      const bool is_last = i == Histogram::kBounds.size();
      const std::string bound = is_last ? "+Inf" : fmt::format("{}", Histogram::kBounds[i]);
      Sample(fmt::format("{}_bucket", name), fmt::format("le=\"{}\"", bound), count);
    }
    Sample(fmt::format("{}_sum", name), "", histogram.sum());
    Sample(fmt::format("{}_count", name), "", count);
  }
  std::string Take() { return std::move(text_); }

 private:
  std::string text_;
};

std::string TierLabel(int tier) {
  return fmt::format("tier=\"{}\"", TierName(static_cast<Tier>(tier)));
}

std::string SourceLabel(std::string_view source) { return fmt::format("source=\"{}\"", source); }

// Returns the guesses of all sources.
Guesses AllGuesses(const Figures& figures) {
  Guesses all;
  for (const auto& [source, guesses] : figures.guesses) {
    all.drafted += guesses.drafted;
    all.accepted += guesses.accepted;
  }
  return all;
}

void AddTiers(const Figures& figures, Writer* writer) {
  const auto each = [&](std::string_view name, std::string_view help, auto value) {
    writer->Family(name, "gauge", help);
    for (int tier = 0; tier < kNumTiers - 1; ++tier) {
      writer->Sample(name, TierLabel(tier), value(figures.arenas[tier]));
    }
  };
  each("ebb_kv_bytes", "Bytes of pages that sessions hold, by tier; of T1 in a file, of the file.",
       [](const ArenaAccounting& arena) { return arena.used_bytes; });
  each("ebb_kv_reserved_bytes", "Bytes mapped for rows.",
       [](const ArenaAccounting& arena) { return arena.reserved_bytes; });
  each("ebb_kv_cap_bytes", "Hard cap; 0: none.",
       [](const ArenaAccounting& arena) { return arena.cap_bytes; });
  each("ebb_kv_pledged_bytes", "Bytes kept for floors of sessions that do not use them yet.",
       [](const ArenaAccounting& arena) { return arena.pledged_bytes; });
  writer->Family("ebb_kv_rows", "gauge", "Rows of all sessions: (layer, kv head, token) triples.");
  for (int tier = 0; tier < kNumTiers - 1; ++tier) {
    writer->Sample("ebb_kv_rows", TierLabel(tier), figures.rows[tier]);
  }
}

void AddReading(const Figures& figures, Writer* writer) {
  const SelectionAccounting& selection = figures.selection;
  writer->Counter(
      "ebb_selective_rows_read_total",
      "Rows that selective steps of requests that are over have read (--t1-read select).",
      selection.rows_read);
  writer->Counter("ebb_selective_rows_unread_total", "Visible rows that these steps left out.",
                  selection.rows_unread);
  writer->Counter("ebb_selective_pages_cached_total", "Pages of T1 that these steps found cached.",
                  selection.pages_cached);
  writer->Counter("ebb_selective_pages_read_total", "Pages that these steps read from T1.",
                  selection.pages_read);
  writer->Counter("ebb_selective_bytes_read_total", "Bytes of these pages.", selection.bytes_read);
  writer->Counter("ebb_selective_wait_seconds_total", "Time that steps waited for these pages.",
                  selection.wait_seconds);
  writer->Gauge("ebb_selective_unread_mass",
                "Estimated share of the attention that the last such request left unread.",
                selection.unread_mass);
  if (selection.num_samples > 0) {
    writer->Gauge("ebb_selective_sampled_unread_mass",
                  "The same share, computed from keys at every 17th token for one query head.",
                  selection.sampled_unread_mass);
  }
  writer->Family("ebb_drafted_tokens_total", "counter",
                 "Tokens that speculative decoding guessed, by source.");
  for (const auto& [source, guesses] : figures.guesses) {
    writer->Sample("ebb_drafted_tokens_total", SourceLabel(source), guesses.drafted);
  }
  writer->Family("ebb_accepted_tokens_total", "counter",
                 "Drafted tokens that became part of the text, by source.");
  for (const auto& [source, guesses] : figures.guesses) {
    writer->Sample("ebb_accepted_tokens_total", SourceLabel(source), guesses.accepted);
  }
}

void AddVllm(const Figures& figures, Writer* writer) {
  const ArenaAccounting& t0 = figures.arenas[0];
  writer->Gauge("vllm:num_requests_running", "ebb_requests_running",
                figures.reading + figures.decoding);
  writer->Gauge("vllm:num_requests_waiting", "ebb_requests_waiting and ebb_requests_parked",
                figures.waiting + figures.parked);
  writer->Gauge("vllm:kv_cache_usage_perc", "ebb_kv_bytes of T0 as a share of its cap",
                t0.cap_bytes == 0 ? 0.0 : static_cast<double>(t0.used_bytes) / t0.cap_bytes);
  writer->Counter("vllm:prefix_cache_queries_total", "ebb_prefix_queries_total",
                  figures.prefix_queries);
  writer->Counter("vllm:prefix_cache_hits_total", "ebb_prefix_hits_total", figures.prefix_hits);
  writer->Add("vllm:time_to_first_token_seconds", "ebb_time_to_first_token_seconds",
              figures.first_token);
  writer->Add("vllm:inter_token_latency_seconds", "ebb_inter_token_seconds",
              figures.between_tokens);
}

double PerUnit(double count, double of) { return of > 0 ? count / of : 0; }

// Adds the figures under llama-server's names. llama-server's gauges are means since the last
// scrape; the ones added here are means since the server began.
void AddLlamaCpp(const Figures& figures, Writer* writer) {
  const auto counter = [&](const char* name, const char* help, auto value) {
    writer->Counter(fmt::format("llamacpp:{}", name), help, value);
  };
  const auto gauge = [&](const char* name, const char* help, auto value) {
    writer->Gauge(fmt::format("llamacpp:{}", name), help, value);
  };
  counter("prompt_tokens_total", "ebb_prompt_tokens_total", figures.prompt_tokens);
  counter("prompt_tokens_cached_total", "ebb_prefix_hits_total", figures.prefix_hits);
  counter("prompt_seconds_total", "Time until the first token of requests that are over.",
          figures.prompt_seconds);
  counter("tokens_predicted_total", "ebb_generated_tokens_total", figures.generated_tokens);
  counter("tokens_predicted_seconds_total", "Time after the first token of such requests.",
          figures.decode_seconds);
  counter("n_decode_total", "ebb_steps_total", figures.steps);
  counter("n_tokens_max", "Most tokens of a prompt and its answer.", figures.most_tokens);
  const Guesses guesses = AllGuesses(figures);
  counter("spec_decode_num_draft_tokens_total", "ebb_drafted_tokens_total", guesses.drafted);
  counter("spec_decode_num_accepted_tokens_total", "ebb_accepted_tokens_total", guesses.accepted);
  counter("spec_decode_num_drafts_total", "ebb does not count drafts.", 0);
  gauge("prompt_tokens_seconds", "Tokens of prompts per second.",
        PerUnit(static_cast<double>(figures.prompt_tokens), figures.prompt_seconds));
  gauge("predicted_tokens_seconds", "Tokens after the first one per second.",
        PerUnit(static_cast<double>(figures.decoded_tokens), figures.decode_seconds));
  gauge("requests_processing", "ebb_requests_running", figures.reading + figures.decoding);
  gauge("requests_deferred", "ebb_requests_waiting and ebb_requests_parked",
        figures.waiting + figures.parked);
  gauge("n_busy_slots_per_decode", "Requests per step.",
        PerUnit(static_cast<double>(figures.stepped_jobs), static_cast<double>(figures.steps)));
}

}  // namespace

std::string MetricsText(const Figures& figures, size_t num_connections, MetricsAlias alias) {
  Writer writer;
  writer.Gauge("ebb_requests_running", "Requests that are read or decoded.",
               figures.reading + figures.decoding);
  writer.Gauge("ebb_requests_reading", "Requests whose prompt is being read.", figures.reading);
  writer.Gauge("ebb_requests_waiting", "Requests that have not begun.", figures.waiting);
  writer.Gauge("ebb_requests_parked", "Requests whose rows rest in T1.", figures.parked);
  writer.Gauge("ebb_predicted_wait_seconds", "Until a request that comes now begins.",
               figures.predicted_wait);
  writer.Gauge("ebb_connections", "Open connections.", num_connections);
  writer.Family("ebb_requests_total", "counter", "Requests that are over, by how they ended.");
  for (const auto& [reason, count] : figures.ended) {
    writer.Sample("ebb_requests_total", fmt::format("finish=\"{}\"", reason), count);
  }
  writer.Counter("ebb_prompt_tokens_total", "Tokens of prompts that were read.",
                 figures.prompt_tokens);
  writer.Counter("ebb_generated_tokens_total", "Tokens that were generated.",
                 figures.generated_tokens);
  writer.Counter("ebb_steps_total", "Steps of the engine.", figures.steps);
  writer.Counter("ebb_parks_total", "Times that a request was parked.", figures.parks);
  writer.Counter("ebb_resumes_total", "Times that a parked request went on.", figures.resumes);
  writer.Counter("ebb_t0_share_changes_total", "Times that a session's share of T0 changed.",
                 figures.share_changes);
  writer.Counter("ebb_t0_refusals_total", "Times that T0 had no room for what was planned.",
                 figures.t0_refusals);
  writer.Counter("ebb_prefix_queries_total", "Tokens of prompts whose beginnings were looked up.",
                 figures.prefix_queries);
  writer.Counter("ebb_prefix_hits_total", "Of them, those whose rows another session had.",
                 figures.prefix_hits);
  writer.Counter("ebb_prefixes_sunk_total", "Prefixes demoted to T1 because requests needed room.",
                 figures.prefixes_demoted);
  writer.Counter("ebb_prefixes_dropped_total", "Prefixes that went because requests needed room.",
                 figures.prefixes_dropped);
  writer.Gauge("ebb_prefixes", "Prompts that are kept for others.", figures.prefixes);
  writer.Gauge("ebb_prefix_bytes",
               "Bytes that they take; a page that k sessions hold counts as a kth.",
               figures.prefix_bytes);
  AddTiers(figures, &writer);
  AddReading(figures, &writer);
  writer.Add("ebb_queue_seconds", "From a request's arrival to its beginning.", figures.queue);
  writer.Add("ebb_time_to_first_token_seconds", "From a request's arrival to its first token.",
             figures.first_token);
  writer.Add("ebb_inter_token_seconds", "Between two tokens of a request.", figures.between_tokens);
  writer.Add("ebb_request_seconds", "From a request's arrival to its end.", figures.whole);
  if (alias == MetricsAlias::kVllm) AddVllm(figures, &writer);
  if (alias == MetricsAlias::kLlamaCpp) AddLlamaCpp(figures, &writer);
  return writer.Take();
}

}  // namespace ebb::server
