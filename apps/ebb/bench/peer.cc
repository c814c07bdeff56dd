#include "apps/ebb/bench/peer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <sstream>
#include <system_error>

#include <nlohmann/json.hpp>

namespace ebb::cli {
namespace {

using Arguments = std::vector<std::string>;

Arguments operator+(Arguments a, const Arguments& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// What all of the tools understand.
Arguments Common(const PeerWork& work) {
  const std::string kv_type(RowTypeName(work.kv_type));
  return {"-m",   work.model_path, "-t",   std::to_string(work.threads),
          "-ctk", kv_type,         "-ctv", kv_type};
}

std::string OnOff(FlashAttention flash) { return flash == FlashAttention::kOn ? "on" : "off"; }

Result<MeasuredCommand> Command(const std::string& folder, std::string_view tool,
                                const Arguments& arguments,
                                Result<std::vector<double>> (*read)(const ProcessResult&)) {
  EBB_ASSIGN_OR_RETURN(const std::string path, FindPeerTool(folder, tool));
  return MeasuredCommand{.arguments = Arguments{path} + arguments, .read = read};
}

Result<MeasuredCommand> LlamaBench(const std::string& folder, const PeerWork& work,
                                   FlashAttention flash, const Arguments& what) {
  const Arguments how = {"-o",  "jsonl",
                         "-d",  std::to_string(work.depth),
                         "-r",  std::to_string(work.repetitions),
                         "-fa", flash == FlashAttention::kOn ? "1" : "0"};
  return Command(folder, "llama-bench", Common(work) + how + what, [](const ProcessResult& result) {
    return ReadJsonNumbers(result.output, "samples_ts");
  });
}

Arguments BatchedBench(const PeerWork& work, FlashAttention flash) {
  const int context = work.sequences * (work.depth + work.tokens);
  return Common(work) + Arguments{"-fa",
                                  OnOff(flash),
                                  "-c",
                                  std::to_string(context),
                                  "-npp",
                                  std::to_string(work.depth),
                                  "-ntg",
                                  std::to_string(work.tokens),
                                  "-npl",
                                  std::to_string(work.sequences),
                                  "--output-format",
                                  "jsonl"};
}

}  // namespace

std::string PeerFolder(const CliOptions& options) {
  if (!options.bench.peer_folder.empty()) return options.bench.peer_folder;
  if (const char* folder = std::getenv("EBB_PEER_DIR"); folder != nullptr && *folder != '\0') {
    return folder;
  }
  // build/release/bin/ebb -> build/peer/bin
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  return program.parent_path().parent_path().parent_path() / "peer" / "bin";
}

Result<std::string> FindPeerTool(const std::string& folder, std::string_view name) {
  const std::string path = std::filesystem::path(folder) / name;
  if (access(path.c_str(), X_OK) == 0) return path;
  return NotFound(fmt::format(
      "there is no {} in {}; run \"make peer\", or name its folder with --peer or EBB_PEER_DIR",
      name, folder));
}

Result<MeasuredCommand> PeerDecode(const std::string& folder, const PeerWork& work,
                                   FlashAttention flash) {
  return LlamaBench(folder, work, flash, {"-p", "0", "-n", std::to_string(work.tokens)});
}

Result<MeasuredCommand> PeerPrefill(const std::string& folder, const PeerWork& work,
                                    FlashAttention flash) {
  return LlamaBench(folder, work, flash, {"-n", "0", "-p", std::to_string(work.prompt_tokens)});
}

Result<MeasuredCommand> PeerBatched(const std::string& folder, const PeerWork& work,
                                    FlashAttention flash) {
  return Command(
      folder, "llama-batched-bench", BatchedBench(work, flash),
      [](const ProcessResult& result) { return ReadJsonNumbers(result.output, "speed_tg"); });
}

Result<MeasuredCommand> PeerPeakMemory(const std::string& folder, const PeerWork& work,
                                       FlashAttention flash) {
  return Command(folder, "llama-batched-bench", BatchedBench(work, flash), ReadPeakBytes);
}

Result<MeasuredCommand> PeerFirstToken(const std::string& folder, const PeerWork& work,
                                       FlashAttention flash, std::string_view prompt) {
  // A small context and no warm-up: the peer at its fastest.
  const Arguments how = {"-fa", OnOff(flash),        "-c",     "512", "-n",      "1",
                         "-p",  std::string(prompt), "--temp", "0",   "-no-cnv", "--no-warmup"};
  return Command(folder, "llama-completion", Common(work) + how, ReadSeconds);
}

Result<std::vector<double>> ReadPeakBytes(const ProcessResult& result) {
  return std::vector<double>{static_cast<double>(result.peak_resident_bytes)};
}

Result<std::vector<double>> ReadSeconds(const ProcessResult& result) {
  return std::vector<double>{result.seconds};
}

Result<std::vector<double>> ReadJsonNumbers(const std::string& output, std::string_view key) {
  std::optional<std::vector<double>> numbers;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    const auto record = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!record.is_object() || !record.contains(key)) continue;
    const nlohmann::json& value = record[std::string(key)];
    const nlohmann::json array = value.is_array() ? value : nlohmann::json::array({value});
    numbers.emplace();
    for (const nlohmann::json& number : array) {
      if (number.is_number()) numbers->push_back(number.get<double>());
    }
  }
  if (!numbers.has_value() || numbers->empty()) {
    return Corrupt(fmt::format("expected a line of JSON with \"{}\", found: {}", key,
                               output.empty() ? "nothing" : output.substr(0, 400)));
  }
  return *std::move(numbers);
}

}  // namespace ebb::cli
