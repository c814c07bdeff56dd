// llama.cpp's own tools, which `ebb bench compare` runs for the same work: where they are, what
// they are told, what their output says.
#ifndef EBB_APPS_BENCH_PEER_H_
#define EBB_APPS_BENCH_PEER_H_

#include <string>
#include <string_view>
#include <vector>

#include "apps/ebb/options/options.h"
#include "apps/ebb/terminal/subprocess.h"
#include "ebb/status.h"
#include "ebb/types.h"

namespace ebb::cli {

// A program to run, and how its measurements are found in what it left.
struct MeasuredCommand {
  std::vector<std::string> arguments;  // the first one is the program
  Result<std::vector<double>> (*read)(const ProcessResult& result) = nullptr;
};

// What both sides are to do. Of the cache's tokens, `depth` are there before the measurement.
struct PeerWork {
  std::string model_path;
  int threads = 0;
  RowType kv_type = RowType::kF16;
  int depth = 0;
  int prompt_tokens = 0;
  int tokens = 0;
  int sequences = 1;
  int repetitions = 1;
};

enum class FlashAttention { kOff, kOn };

// --peer, else EBB_PEER_DIR, else build/peer/bin beside the build that this program is in.
[[nodiscard]] std::string PeerFolder(const CliOptions& options);
// The file in the folder. Errors: kNotFound, naming the folder and `make peer`.
[[nodiscard]] Result<std::string> FindPeerTool(const std::string& folder, std::string_view name);

// Each needs one of the tools in `folder`.
[[nodiscard]] Result<MeasuredCommand> PeerDecode(const std::string& folder, const PeerWork& work,
                                                 FlashAttention flash);
[[nodiscard]] Result<MeasuredCommand> PeerPrefill(const std::string& folder, const PeerWork& work,
                                                  FlashAttention flash);
// Tokens per second of all sequences together.
[[nodiscard]] Result<MeasuredCommand> PeerBatched(const std::string& folder, const PeerWork& work,
                                                  FlashAttention flash);
// Bytes. Not by llama-bench, which keeps a copy of the cache.
[[nodiscard]] Result<MeasuredCommand> PeerPeakMemory(const std::string& folder,
                                                     const PeerWork& work, FlashAttention flash);
// Seconds from the start of the process to its end, after one token.
[[nodiscard]] Result<MeasuredCommand> PeerFirstToken(const std::string& folder,
                                                     const PeerWork& work, FlashAttention flash,
                                                     std::string_view prompt);

// For the commands of either side. Errors: the output is not what was expected.
[[nodiscard]] Result<std::vector<double>> ReadPeakBytes(const ProcessResult& result);
[[nodiscard]] Result<std::vector<double>> ReadSeconds(const ProcessResult& result);
// The array `key` (or the number, as an array of one) of the last line that is a JSON object.
[[nodiscard]] Result<std::vector<double>> ReadJsonNumbers(const std::string& output,
                                                          std::string_view key);

}  // namespace ebb::cli

#endif  // EBB_APPS_BENCH_PEER_H_
