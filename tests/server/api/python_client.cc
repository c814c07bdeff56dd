#include "tests/server/api/python_client.h"

#include <cstdlib>

namespace ebb::server {
namespace {

std::string Python() {
  const char* named = std::getenv("EBB_OPENAI_PYTHON");
  return named != nullptr ? named : "python3";
}

}  // namespace

std::optional<std::string> WhyNoPython(const std::string& package) {
  const auto found =
      cli::RunProcess({Python(), "-c", "import " + package}, cli::ProcessOutput::kKeepBoth);
  if (found.ok() && found->exit_code == 0) return std::nullopt;
  return Python() + " has no package " + package + "; EBB_OPENAI_PYTHON names another";
}

cli::ProcessResult RunPython(const std::string& script, const std::vector<std::string>& arguments) {
  std::vector<std::string> all = {Python(), "-c", script};
  all.insert(all.end(), arguments.begin(), arguments.end());
  auto end = cli::RunProcess(all, cli::ProcessOutput::kKeepBoth);
  if (!end.ok()) return {.exit_code = -1, .output = end.status().ToString()};
  return *std::move(end);
}

}  // namespace ebb::server
