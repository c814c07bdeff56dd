// Options of `ebb fidelity` and `ebb bench`, and their rows of the option table.
#ifndef EBB_CLI_BENCH_OPTIONS_H_
#define EBB_CLI_BENCH_OPTIONS_H_

#include <string>
#include <vector>

namespace ebb::cli {

struct OptionRow;

struct BenchOptions {
  int depth = 0;
  std::vector<int> depths = {512, 2048, 8000};
  bool no_mass = false;
  int repetitions = 5;
};

struct FidelityOptions {
  std::string text_file;
};

// Appends the rows of the groups kFidelity and kBench*.
void AppendBenchOptionRows(std::vector<OptionRow>* table);

}  // namespace ebb::cli

#endif  // EBB_CLI_BENCH_OPTIONS_H_
