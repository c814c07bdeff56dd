// Options of `ebb-bench`, and their rows of the option table.
#ifndef EBB_APPS_BENCH_BENCH_OPTIONS_H_
#define EBB_APPS_BENCH_BENCH_OPTIONS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ebb/tiers.h"

namespace ebb::cli {

struct OptionRow;

struct BenchOptions {
  int repetitions = 5;
  // decode, prefill
  std::vector<int> depths = {0};
  // decode
  bool no_mass = false;
  bool mass_cost = false;
  bool against_full = false;
  int tokens = 48;
  int generate = 0;
  int sequences = 1;
  // lossless
  std::optional<double> accept;  // unset: the model's own text, with its own guesses
  // prefill
  int prompt_tokens = 512;
  // attention
  int rows = 8000;
  double keep = 1;
  std::optional<CompressedType> compressed;
  // memory
  uint64_t bytes = uint64_t{512} << 20;
  // products
  std::vector<std::string> types;  // empty: all
  int columns = 1536;
  int matrix_rows = 8960;
  int batch = 512;
  uint64_t product_bytes = uint64_t{1} << 30;
};

// Appends the rows of the groups kBench*.
void AppendBenchOptionRows(std::vector<OptionRow>* table);

}  // namespace ebb::cli

#endif  // EBB_APPS_BENCH_BENCH_OPTIONS_H_
