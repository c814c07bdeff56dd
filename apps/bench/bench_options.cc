#include "apps/bench/bench_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "apps/common/options/option_values.h"
#include "apps/common/options/options.h"

namespace ebb::cli {
namespace {

using G = OptionGroup;

Status ReadKeep(std::string_view text, CliOptions* options) {
  const Result<Budget> budget = ParseBudget(text);
  constexpr double kAll = 100;
  if (!budget.ok() || budget->unit != Budget::Unit::kPercent || budget->value <= 0 ||
      budget->value > kAll) {
    return InvalidArgument(
        fmt::format("expected a percentage above 0% and up to 100%, found \"{}\"", text));
  }
  options->Of<BenchOptions>().keep = budget->value / kAll;
  return OkStatus();
}

Status ReadCompressed(std::string_view text, CliOptions* options) {
  EBB_ASSIGN_OR_RETURN(options->Of<BenchOptions>().compressed, ParseCompressedType(text));
  return OkStatus();
}

Status ReadBytes(std::string_view text, CliOptions* options) {
  EBB_ASSIGN_OR_RETURN(options->Of<BenchOptions>().bytes, ParseBytes(text));
  return OkStatus();
}

Status ReadProductBytes(std::string_view text, CliOptions* options) {
  EBB_ASSIGN_OR_RETURN(options->Of<BenchOptions>().product_bytes, ParseBytes(text));
  return OkStatus();
}

Status ReadTypes(std::string_view text, CliOptions* options) {
  options->Of<BenchOptions>().types.clear();
  while (true) {
    const size_t comma = std::min(text.find(','), text.size());
    options->Of<BenchOptions>().types.emplace_back(text.substr(0, comma));
    if (comma == text.size()) return OkStatus();
    text.remove_prefix(comma + 1);
  }
}

std::vector<OptionRow> ProductRows() {
  return {
      {G::kBenchProducts, "--types", "TYPE,TYPE,...",
       "types of weights, such as q4_K,q6_K; without it, all that this CPU multiplies", ReadTypes,
       nullptr},
      ValueRow(G::kBenchProducts, "--columns", "N", "columns of a matrix, a multiple of 256",
               [](CliOptions& o) { return &o.Of<BenchOptions>().columns; }, {.min = 256}),
      ValueRow(G::kBenchProducts, "--rows", "N", "rows of a matrix",
               [](CliOptions& o) { return &o.Of<BenchOptions>().matrix_rows; }, {.min = 64}),
      ValueRow(G::kBenchProducts, "--batch", "N", "tokens of the measurement of arithmetic",
               [](CliOptions& o) { return &o.Of<BenchOptions>().batch; }, {.min = 1}),
      {G::kBenchProducts, "--bytes", "SIZE",
       "size of all matrices of a type, which are read in turn, such as 1GiB", ReadProductBytes,
       [](const CliOptions& o) {
         return fmt::format("{}MiB", o.Of<BenchOptions>().product_bytes >> 20);
       }},
  };
}

std::vector<OptionRow> MeasurementRows() {
  return {
      ValueRow(G::kBenchDepth, "--depth,--depths", "N,N,...",
               "tokens in the cache when a measurement begins",
               [](CliOptions& o) { return &o.Of<BenchOptions>().depths; }, {.min = 0}),
      FlagRow(
          G::kBenchDecode, "--no-mass", "do not compute the mass per row",
          [](CliOptions& o) { return &o.Of<BenchOptions>().no_mass; }, true),
      ValueRow(G::kBenchDecode, "--tokens", "N", "tokens decoded per repetition",
               [](CliOptions& o) { return &o.Of<BenchOptions>().tokens; }, {.min = 1}),
      ValueRow(
          G::kBenchGenerate, "--generate", "N",
          "decode N tokens one by one, so that the policy works, and measure the last ones; 0: "
          "fill the cache to --depth by prefill",
          [](CliOptions& o) { return &o.Of<BenchOptions>().generate; }, {.min = 0}),
      FlagRow(
          G::kBenchGenerate, "--mass-cost",
          "also measure without mass, alternately, and report the cost of mass",
          [](CliOptions& o) { return &o.Of<BenchOptions>().mass_cost; }, true),
      FlagRow(
          G::kBenchGenerate, "--against-full",
          "also measure a full cache of as many rows, alternately, and report the ratio of the "
          "speeds",
          [](CliOptions& o) { return &o.Of<BenchOptions>().against_full; }, true),
      ValueRow(G::kBenchGenerate, "--sequences", "N",
               "sequences in a batch; each step decodes one token of each",
               [](CliOptions& o) { return &o.Of<BenchOptions>().sequences; },
               {.min = 1, .max = 256}),
      ValueRow(G::kBenchColumns, "-k,--columns", "N", "most tokens of a step",
               [](CliOptions& o) { return &o.Of<BenchOptions>().most_columns; },
               {.min = 1, .max = kMostTokensWithGuesses}),
      ValueRow(G::kBenchLossless, "--tokens", "N", "tokens of a turn",
               [](CliOptions& o) { return &o.Of<BenchOptions>().tokens; }, {.min = 2}),
      {G::kBenchLossless, "--accept", "SHARE",
       "feed random tokens, of which the draft guesses this share, instead of the model's own text",
       [](std::string_view text, CliOptions* options) {
         options->Of<BenchOptions>().accept = 0;
         return ParseValue(text, {.min = 0, .max = 1}, &*options->Of<BenchOptions>().accept);
       },
       nullptr},
      ValueRow(G::kBenchPrompt, "--prompt", "N", "tokens of the prompt that is read",
               [](CliOptions& o) { return &o.Of<BenchOptions>().prompt_tokens; }, {.min = 1}),
      ValueRow(G::kBenchAttention, "--depth", "N", "tokens in the cache",
               [](CliOptions& o) { return &o.Of<BenchOptions>().rows; }, {.min = 1}),
      {G::kBenchAttention, "--keep", "PERCENT",
       "share of the rows that is visible, scattered over their slots", ReadKeep,
       [](const CliOptions& o) { return fmt::format("{:g}%", o.Of<BenchOptions>().keep * 100); }},
      {G::kBenchAttention, "--compressed", "int8|int4|int3|int2|int8_naive",
       "also measure the same rows in T2, alternately", ReadCompressed, nullptr},
      {G::kBenchMemory, "--bytes", "SIZE", "size of the buffer that is read, such as 512MiB",
       ReadBytes,
       [](const CliOptions& o) { return fmt::format("{}MiB", o.Of<BenchOptions>().bytes >> 20); }},
      ValueRow(G::kBench, "--repetitions,--reps", "N",
               "number of measurements; the median is reported",
               [](CliOptions& o) { return &o.Of<BenchOptions>().repetitions; }, {.min = 1}),
  };
}

}  // namespace

void AppendBenchOptionRows(std::vector<OptionRow>* table) {
  for (const auto& rows : {ProductRows(), MeasurementRows()}) {
    table->insert(table->end(), rows.begin(), rows.end());
  }
}

}  // namespace ebb::cli
