#include "src/step/device/rates_file.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>

#include "src/io/file_replacement.h"

namespace ebb {
namespace {

using Json = nlohmann::json;

// Returns the file's JSON; null if the file is missing or is something else.
Json ReadAll(const std::string& path) {
  std::ifstream file(path);
  Json all = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  return all.is_object() ? all : Json();
}

}  // namespace

std::optional<DeviceRates> FindRates(const std::string& path, const std::string& name) {
  const Json all = ReadAll(path);
  if (!all.is_object() || !all.contains(name) || !all[name].is_object()) return std::nullopt;
  bool is_whole = true;
  const auto number = [&](const char* key) {
    const auto found = all[name].find(key);
    const double value =
        found != all[name].end() && found->is_number() ? found->get<double>() : -1.0;
    is_whole = is_whole && std::isfinite(value) && value > 0;
    return value;
  };
  const DeviceRates rates = {.copy_bytes_per_s = number("copy_bytes_per_s"),
                             .latency_seconds = number("latency_seconds"),
                             .host_bytes_per_s = number("host_bytes_per_s")};
  return is_whole ? std::optional(rates) : std::nullopt;
}

Status KeepRates(const std::string& path, const std::string& name, const DeviceRates& rates) {
  Json all = ReadAll(path);
  if (!all.is_object()) all = Json::object();
  all[name] = {{"copy_bytes_per_s", rates.copy_bytes_per_s},
               {"latency_seconds", rates.latency_seconds},
               {"host_bytes_per_s", rates.host_bytes_per_s}};
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code ignored;  // FileReplacement::Create() reports the error
  if (!folder.empty()) std::filesystem::create_directories(folder, ignored);
  EBB_ASSIGN_OR_RETURN(const auto file, FileReplacement::Create(path));
  const std::string text = all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  EBB_RETURN_IF_ERROR(file->Write(std::as_bytes(std::span(text))));
  return file->Commit();
}

}  // namespace ebb
