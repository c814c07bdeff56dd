// Declares the options of `ebb-bench` and their rows in the option table.
#ifndef EBB_APPS_BENCH_BENCH_OPTIONS_H_
#define EBB_APPS_BENCH_BENCH_OPTIONS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ebb/lossless.h"
#include "ebb/tiers.h"

namespace ebb::cli {

struct OptionRow;

// BenchOptions has the options that only ebb-bench has, grouped by the commands that use them.
struct BenchOptions {
  int repetitions = 5;
  // depths are the numbers of tokens in the cache at which `decode`, `prefill` and `lossless`
  // measure.
  std::vector<int> depths = {0};
  // no_mass and the next five members are options of `decode`; `lossless` uses `tokens` too.
  bool no_mass = false;
  bool mass_cost = false;
  bool against_full = false;
  int tokens = 48;
  int generate = 0;
  int sequences = 1;
  // most_columns is the most tokens of a step that `columns` measures.
  int most_columns = kMostTokensWithGuesses;
  // accept is the share of drafted tokens that are right in `lossless`.
  std::optional<double> accept;  // unset: the model generates the text and its own drafts
  // prompt_tokens is the length of the prompt that `prefill` reads.
  int prompt_tokens = 512;
  // rows and the next two members are options of `attention`: `rows` is the cache's size, `keep`
  // the share of rows that are visible.
  int rows = 8000;
  double keep = 1;
  std::optional<CompressedType> compressed;
  // bytes is the size of the buffer that `memory` reads.
  uint64_t bytes = uint64_t{512} << 20;
  // types and the next four members are options of `products`.
  std::vector<std::string> types;  // empty: all types
  int columns = 1536;
  int matrix_rows = 8960;
  int batch = 512;
  uint64_t product_bytes = uint64_t{1} << 30;
};

// Appends the rows of the option groups whose names begin with kBench, and of no other group.
void AppendBenchOptionRows(std::vector<OptionRow>* table);

}  // namespace ebb::cli

#endif  // EBB_APPS_BENCH_BENCH_OPTIONS_H_
