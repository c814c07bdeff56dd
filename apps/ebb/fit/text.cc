#include "apps/ebb/fit/text.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include <fmt/format.h>

#include "apps/common/options/option_errors.h"
#include "apps/common/terminal/bytes.h"
#include "apps/common/terminal/wrap.h"
#include "ebb/setting_fields.h"
#include "src/base/text/size_text.h"

namespace ebb::cli {
namespace {

// Returns the text as a word of a shell command.
std::string ShellWord(std::string_view text) {
  const auto is_plain = [](unsigned char c) {
    return std::isalnum(c) != 0 || std::string_view("_@%+=:,./-").find(c) != std::string_view::npos;
  };
  if (!text.empty() && std::ranges::all_of(text, is_plain)) return std::string(text);
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

bool IsGiven(const CliOptions& options, std::string_view name) {
  return std::ranges::find(options.given, name, &GivenWord::name) != options.given.end();
}

// Breaks a command into lines that a shell joins.
std::string Broken(const std::vector<std::string>& parts) {
  std::string lines;
  int column = 0;
  for (const std::string& part : parts) {
    const auto length = static_cast<int>(part.size());
    if (column > 0 && column + length + 3 > kFitColumns) {
      lines += " \\\n   ";
      column = 3;
    }
    if (column > 0) {
      lines += ' ';
      ++column;
    }
    lines += part;
    column += length;
  }
  return lines;
}

std::string Rate(double rate) { return rate > 0 ? fmt::format("{:.1f}", rate) : std::string("?"); }

// Returns the row's line. A context beyond `most_context` tokens is not useful.
std::string TableLine(const FitRow& row, int most_context) {
  if (!row.bytes.ok()) {
    return Wrapped(fmt::format("{:<36} {}", row.setting.name, TextWithOption(row.fits)), 4,
                   kFitColumns) +
           "\n";
  }
  const FitBytes& b = *row.bytes;
  return fmt::format("{:<36}{:>8}{:>8}{:>5}{:>9}{:>5}{:>9}\n", row.setting.name, InMiB(b.Memory()),
                     InMiB(b.t1_disk), row.fits.ok() ? "yes" : "no",
                     std::min(row.largest_context, most_context), row.most_requests,
                     b.on_device     ? InMiB(b.DeviceMemory())
                     : row.fits.ok() ? Rate(row.tokens_per_s)
                                     : "-");
}

std::string MeasuredText(const FitQuestion& question, const Machine& machine) {
  const FitSpeeds& speeds = machine.speeds;
  const std::string disk =
      speeds.disk_gb_s > 0 ? fmt::format("{:.2f} GB/s", speeds.disk_gb_s) : "not measured";
  const std::string rates =
      speeds.step_seconds > 0
          ? fmt::format(
                "tokens/s from a step of {:.1f} ms without rows and attention at {:.1f} GB/s",
                1000 * speeds.step_seconds, speeds.full_rows_gb_s)
          : std::string(
                "tokens/s are what those bandwidths allow, no more (--measure: what this "
                "machine reaches)");
  return fmt::format(
      "measured: memory {:.1f} GB/s ({} threads), disk {}; at most {} of memory and {} of disk; "
      "program and tokenizer {}. computed: all else; {}.",
      speeds.memory_gb_s, machine.threads, disk, SizeText(machine.limits.memory_bytes),
      SizeText(machine.limits.disk_bytes), SizeText(question.model.program_bytes), rates);
}

std::string PartsText(const FitRow& row) {
  const FitBytes& b = *row.bytes;
  return fmt::format(
      "The parts of \"{}\": weights {}, program {}, compute buffers {}, T0 {}, T1 {}, T2 {}, "
      "tables of rows {}, buffers of T1 {} (--json: of every setting).",
      row.setting.name, SizeText(b.weights), SizeText(b.program), SizeText(b.compute),
      SizeText(b.t0), SizeText(b.t1_memory), SizeText(b.t2), SizeText(b.tables),
      SizeText(b.staging));
}

// Returns what the columns mean.
std::string ColumnsText(const FitQuestion& question, const Machine& machine, int trained_context) {
  const FitRequest& request = question.request;
  std::string text = fmt::format(
      "Sizes are in MiB. \"context\" is the longest that fits (the model was trained with {}), "
      "\"seqs\" the most sequences of {} tokens at once.",
      trained_context, request.context);
  if (request.on_device) {
    text += fmt::format(
        " \"memory\" is what the host takes, \"device\" what the device does: weights, T0, "
        "{}staging, compute buffers; it has {}.",
        request.t2_on_device ? "T2, " : "",
        machine.limits.device_bytes == std::numeric_limits<uint64_t>::max()
            ? std::string("not said how much it has")
            : SizeText(machine.limits.device_bytes));
  }
  if (question.model.expert_bytes > 0) {
    text +=
        fmt::format(" A token reads {} of the weights.", SizeText(WeightsRead(question.model, 1)));
  }
  return text;
}

// Returns the row that the printed command runs: that of the given tiers if they fit; without given
// tiers, if no setting fits the requested context, the row that fits the longest context. Null: no
// such row exists, or the gentlest setting fits, which the caller prints instead.
const FitRow* ChosenRow(const std::vector<FitRow>& rows, const Result<FitSetting>& gentlest) {
  const auto row = std::ranges::max_element(rows, {}, &FitRow::largest_context);
  const bool asked = rows.front().setting.name == "as asked for";
  if (asked && rows.front().fits.ok()) return &rows.front();
  if (asked || gentlest.ok() || row->largest_context == 0) return nullptr;
  return &*row;
}

// Returns the choice and a command; empty where nothing fits, which the program's error then says.
std::string ResultText(const CliOptions& options, const FitQuestion& question,
                       const std::vector<FitRow>& rows, const Result<FitSetting>& gentlest) {
  const bool kv_type_given = IsGiven(options, "--kv-type");
  const FitRow* const chosen = ChosenRow(rows, gentlest);
  const std::string download = DownloadText(question.download_bytes);
  const std::string best =
      gentlest.ok() ? fmt::format("The gentlest that fits: {}", gentlest->name) : "";
  const auto ending = [&](const std::string& text, std::string_view setting, int context,
                          bool names_context) {
    return fmt::format("{}\n\n{}", Wrapped(text + download + ":", 0, kFitColumns),
                       CommandFor(options, setting, context, names_context));
  };
  const int context = question.request.context;
  if (chosen != nullptr && chosen->fits.ok()) {
    const std::string given = "The given tiers fit, too; to run them";
    return ending(best.empty() ? "The given tiers fit" : best + ". " + given, "", context, false);
  }
  if (chosen != nullptr) {
    return ending(
        fmt::format("{} tokens fit with {}", chosen->largest_context, chosen->setting.name),
        ShortSetting(chosen->setting, kv_type_given), chosen->largest_context, true);
  }
  // Given tiers that do not fit leave the choice to ebb.
  if (!gentlest.ok() || rows.front().setting.name == "as asked for") return best;
  return ending(best + ". To run it", ShortSetting(*gentlest, kv_type_given), context, false);
}

}  // namespace

std::string ShortSetting(const FitSetting& setting, bool kv_type_given) {
  if (!setting.tiers.has_value()) return "";
  for (const std::string_view type : {"q8", "q4", "q3", "q2"}) {
    const std::string compressed = TierOptionsText(CompressedCache(*CompressedKvType(type)));
    if (!kv_type_given && setting.name == compressed) {
      return fmt::format("--kv-type {}", type);
    }
  }
  return setting.name;
}

std::string DownloadText(uint64_t bytes) {
  return bytes == 0
             ? std::string()
             : fmt::format(", after a download of {:.1f} GB", static_cast<double>(bytes) / 1e9);
}

std::string CommandFor(const CliOptions& options, std::string_view setting, int context,
                       bool names_context) {
  constexpr std::array<std::string_view, 6> kOfFit = {"--json",          "--quiet",    "--measure",
                                                      "--prompt-tokens", "--requests", "--list"};
  const bool serves = options.fit.requests > 1;
  const bool runs = !serves && options.fit.prompt_tokens != kPromptsOfConversation;
  if (!serves && IsGiven(options, "--memory")) setting = "";
  std::vector<std::string> parts = {serves ? "ebb serve" : runs ? "ebb run" : "ebb chat"};
  for (const GivenWord& word : options.given) {
    if (std::ranges::count(kOfFit, word.name) > 0) continue;
    if (word.name == "--context" && names_context) continue;
    if (word.name == "--memory" && serves) continue;
    const std::string name = word.name == "--model" ? "-m" : word.name;
    parts.push_back(word.value.has_value() ? fmt::format("{} {}", name, ShellWord(*word.value))
                                           : name);
  }
  if (serves) parts.push_back(fmt::format("--max-running {}", options.fit.requests));
  if (names_context) parts.push_back(fmt::format("--context {}", context));
  if (runs) {
    parts.push_back(fmt::format("-n {}", std::max(1, context - options.fit.prompt_tokens)));
    parts.emplace_back("-f PROMPT.txt");
  }
  // Breaks a setting between its options.
  for (size_t begin = 0; begin < setting.size();) {
    const size_t end = std::min(setting.find(" --", begin), setting.size());
    parts.emplace_back(setting.substr(begin, end - begin));
    begin = end + 1;
  }
  return Broken(parts);
}

std::string FitText(const CliOptions& options, std::string_view model, const FitQuestion& question,
                    const Machine& machine, const std::vector<FitRow>& rows,
                    const Result<FitSetting>& gentlest) {
  const FitRequest& request = question.request;
  std::string text = fmt::format(
      "{}\n{}\n\n", Wrapped(model, 0, kFitColumns),
      Wrapped(fmt::format("{} {}{} of {} tokens, {}, rows in {}", request.requests,
                          request.prompts_at_any_time ? "conversation" : "sequence",
                          request.requests == 1 ? "" : "s", request.context,
                          request.prompts_at_any_time
                              ? std::string("half of them given, at any time")
                              : fmt::format("{} of them given first", request.prompt_tokens),
                          RowTypeName(request.kv_type)),
              0, kFitColumns));
  text += fmt::format("{:<36}{:>8}{:>8}{:>5}{:>9}{:>5}{:>9}\n", "setting", "memory", "disk", "fits",
                      "context", "seqs", request.on_device ? "device" : "tokens/s");
  const int trained_context = question.model.shape.trained_context;
  const int most_context = std::max(trained_context, request.context);
  for (const FitRow& row : rows) text += TableLine(row, most_context);
  if (question.as_trained.has_value()) {
    text += "\n" +
            Wrapped(
                "If the model marks no row, the memory is as above. If it marks as many as "
                "it was trained to:",
                0, kFitColumns) +
            "\n";
    for (const FitRow& row : rows) {
      if (!row.as_trained.has_value()) continue;
      text += fmt::format("{:<36}{:>8} (rows {} instead of {})\n", row.setting.name,
                          SizeText(row.as_trained->Memory()), SizeText(RowsBytes(*row.as_trained)),
                          SizeText(RowsBytes(*row.bytes)));
    }
  }
  std::string notes = ColumnsText(question, machine, trained_context);
  const auto mapped = MappedOf(rows, request, machine);
  if (mapped.has_value()) {
    notes += fmt::format(
        " With the full cache, memory would not hold all weights: about {} would be resident, and "
        "each step would read {} of the file, which allows {:.1f} tokens/s at most.",
        SizeText(mapped->resident_bytes), SizeText(mapped->disk_bytes_per_step),
        mapped->tokens_per_s);
  }
  const auto shown = std::ranges::find_if(rows, [&](const FitRow& row) {
    return row.bytes.ok() && (!gentlest.ok() || row.setting.name == gentlest->name);
  });
  text += "\n" + Wrapped(notes, 0, kFitColumns) + "\n";
  if (shown != rows.end()) text += Wrapped(PartsText(*shown), 0, kFitColumns) + "\n";
  text += Wrapped(MeasuredText(question, machine), 0, kFitColumns) + "\n\n";
  const std::string result = ResultText(options, question, rows, gentlest);
  return result.empty() ? text.substr(0, text.size() - 2) : text + result;
}

}  // namespace ebb::cli
