#include "apps/common/options/foreign_options.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "apps/common/options/option_values.h"

namespace ebb::cli {
namespace {

// ForeignOption describes an option of llama.cpp or Ollama.
struct ForeignOption {
  std::string_view names;  // "-c,--ctx-size"
  bool takes_value = false;
  std::string_view ours = "";    // the option of the same meaning
  std::string_view always = "";  // values whose behaviour ebb always has; "-": the flag itself
  std::string_view hint = "";    // names the option or command of ebb to use instead
};

constexpr std::string_view kFlagAlways = "-";

constexpr std::array kForeignOptions = {
    ForeignOption{"-c,--ctx-size", true, "--context"},
    ForeignOption{"-t", true, "--threads"},
    ForeignOption{"--predict,--n-predict,--num-predict", true, "--tokens"},
    ForeignOption{"-s", true, "--seed"},
    ForeignOption{"--temperature", true, "--temp"},
    ForeignOption{"-sys,--system-prompt", true, "--system"},
    ForeignOption{"--grammar-file", true, "--grammar"},
    ForeignOption{"--typical-p", true, "--typical"},
    ForeignOption{"--top-nsigma", true, "--top-n-sigma"},
    ForeignOption{"--reasoning-budget", true, "--thinking-budget"},
    ForeignOption{"-r,--reverse-prompt", true, "--stop"},
    ForeignOption{"-hfr", true, "--hf-repo"},
    ForeignOption{"-mu,--model-url", true, "--model"},
    ForeignOption{"-a", true, "--alias"},
    ForeignOption{"-np,--parallel", true, "--max-running"},
    ForeignOption{
        "--api-key-file", true, "", "",
        "--api-keys FILE, whose lines hold a name and a key's SHA-256; --new-key NAME makes one"},
    ForeignOption{
        "--api-key", true, "", "",
        "--api-keys FILE --new-key NAME makes a key, so that no key is on a command line"},
    ForeignOption{"--rope-scale", true, "--rope-factor"},
    ForeignOption{"--hidethinking", false, "--thoughts=hide"},
    ForeignOption{"--cors-origins", true, "--cors"},
    ForeignOption{"--jinja,--no-context-shift,-cb,--cont-batching,--cache-prompt,--metrics,--slots,"
                  "--props,--escape,-e,--mmap,--warmup,--repack,-kvu,--kv-unified",
                  false, "", kFlagAlways},
    ForeignOption{
        "-fa,--flash-attn", true, "", "on,auto,1,true",
        "leave it out: attention always works as flash attention does; that cannot be turned off"},
    ForeignOption{
        "-ngl,--gpu-layers,--n-gpu-layers", true, "", "0",
        "--device NAME computes the whole model on a device that `ebb device list` names"},
    ForeignOption{"-dev", true, "", "", "--device NAME, as `ebb device list` names it"},
    ForeignOption{"-sm,--split-mode,-ts,--tensor-split,-mg,--main-gpu,-ot,--override-tensor,-ncmoe,"
                  "--n-cpu-moe",
                  true, "", "", "--device NAME computes the whole model on one device"},
    ForeignOption{
        "-cmoe,--cpu-moe,-nkvo,--no-kv-offload", false, "", "",
        "--device NAME computes the whole model on one device; --t1 host keeps rows in the "
        "host's memory"},
    ForeignOption{"--mlock,--no-mmap", false, "", "",
                  "leave it out: weights are mapped, and stay in memory as long as there is some"},
    ForeignOption{"--color", false, "", "", "leave it out: a terminal shows colours by itself"},
    ForeignOption{"--numa", true, "", "", "leave it out: threads run where the system puts them"},
    ForeignOption{
        "-b,--batch-size,-ub,--ubatch-size", true, "", "",
        "leave it out: ebb chooses how a prompt is cut; `ebb serve --max-stall MS` bounds it"},
    ForeignOption{"-tb,--threads-batch", true, "", "", "--threads N is for prompts and answers"},
    ForeignOption{"--keep", true, "", "", "--sinks N keeps the first tokens where a policy evicts"},
    ForeignOption{"--context-shift", false, "", "",
                  "--past-context rerotate continues past the end of the context"},
    ForeignOption{"-cnv,--conversation,-i,--interactive", false, "", "",
                  "`ebb chat` talks in turns"},
    ForeignOption{"-no-cnv,--no-conversation", false, "", "",
                  "`ebb run` answers once; --raw leaves the chat template out"},
    ForeignOption{"--prompt-cache", true, "", "",
                  "--session FILE keeps a conversation with its cache"},
    ForeignOption{"--slot-save-path", true, "", "", "--sessions file:FOLDER keeps sessions"},
    ForeignOption{"-sysf,--system-prompt-file", true, "", "", "--system \"$(cat FILE)\""},
    ForeignOption{"-j,--json-schema,-jf,--json-schema-file", true, "", "",
                  "--grammar FILE takes a GBNF grammar; `ebb serve` takes schemas in requests"},
    ForeignOption{"--lora,--lora-scaled,--control-vector", true, "", "",
                  "ebb runs models without LoRA adapters; merge the adapter into the model's file"},
    ForeignOption{"-mm,--mmproj,--image,--audio", true, "", "",
                  "ebb reads text, no pictures and sound"},
    ForeignOption{"--embedding,--embeddings,--rerank,--reranking", false, "", "",
                  "ebb generates text; it has no embeddings and no ranking"},
    ForeignOption{"--model-draft", true, "--draft-model", "", ""},
    ForeignOption{"-hfd,--hf-repo-draft", true, "", "", "--draft-model hf:ORG/REPO:QUANT"},
    ForeignOption{"--draft-p-min,--device-draft,--gpu-layers-draft,-ngld,-devd", true, "", "",
                  "leave it out: ebb measures how many guesses pay"},
    ForeignOption{"--rope-freq-base,--rope-freq-scale,--yarn-orig-ctx,--override-kv", true, "", "",
                  "--rope-scaling and --rope-factor; the file says the rest"},
    ForeignOption{"--no-webui,--no-ui", false, "", "", "--chat-page off"},
    ForeignOption{"--log-disable", false, "", "", "--quiet"},
    ForeignOption{"-v,--verbose", false, "", "", "--json writes all figures of a run"},
    ForeignOption{"--keepalive", true, "", "", "leave it out: `ebb serve` keeps the model loaded"},
    ForeignOption{"--format", true, "", "",
                  "--grammar FILE for `ebb run`; `ebb serve` takes response_format in requests"},
    ForeignOption{"--think", false, "", "", "--thinking-budget N; 0 closes the thought at once"},
    ForeignOption{"--nowordwrap,--insecure", false, "", "", "leave it out"},
};

constexpr std::array<std::pair<std::string_view, std::string_view>, 12> kForeignCommands = {{
    {"ps", "`ebb serve` shows what runs at /dashboard"},
    {"show", "`ebb fit -m MODEL` shows a model's size and memory"},
    {"stop", "Ctrl-C ends `ebb serve`"},
    {"start", "`ebb serve` answers requests over HTTP"},
    {"server", "`ebb serve` answers requests over HTTP"},
    {"create", "-m FILE runs any GGUF file"},
    {"cp", "-m FILE runs any GGUF file"},
    {"push", "`ebb pull` fetches models; ebb publishes none"},
    {"ls", "`ebb list` lists the downloaded models"},
    {"delete", "`ebb rm` removes downloaded models"},
    {"download", "`ebb pull` fetches models"},
    {"version", "`ebb --version` prints the version"},
}};

// Returns whether "-c,--ctx-size" has the name.
bool HasName(std::string_view names, std::string_view name) {
  return std::ranges::count(Split(names, ','), name) > 0;
}

const OptionRow* FindRow(std::span<const OptionRow* const> rows, std::string_view name) {
  const auto found =
      std::ranges::find_if(rows, [&](const OptionRow* row) { return HasName(row->names, name); });
  return found == rows.end() ? nullptr : *found;
}

const ForeignOption* FindForeign(std::string_view name) {
  const auto found = std::ranges::find_if(
      kForeignOptions, [&](const ForeignOption& one) { return HasName(one.names, name); });
  return found == kForeignOptions.end() ? nullptr : &*found;
}

// SplitArgument is an argument split at its equals sign: "--ctx-size=4096", or "--ctx-size" whose
// value is the next argument.
struct SplitArgument {
  std::string_view name;
  std::optional<std::string_view> value;
};

SplitArgument SplitAtEquals(std::string_view argument) {
  const size_t equals = argument.starts_with("--") ? argument.find('=') : std::string_view::npos;
  if (equals == std::string_view::npos) return {.name = argument, .value = std::nullopt};
  return {.name = argument.substr(0, equals), .value = argument.substr(equals + 1)};
}

Status NotHere(std::string_view name, std::string_view hint) {
  return InvalidArgument(fmt::format("{} is an option of another program; here: {}", name, hint));
}

// Returns how many arguments an option and its value take.
size_t NumArguments(const SplitArgument& argument, bool takes_value) {
  return takes_value && !argument.value.has_value() ? 2 : 1;
}

bool TakesValue(const OptionRow& row) { return !row.value.empty(); }

// Appends llama.cpp's -ctk and -ctv as one --kv-type, the format of keys and values here.
Status AppendCacheTypes(const std::string& keys, const std::string& values,
                        std::vector<std::string>* arguments) {
  if (keys.empty() != values.empty()) {
    return InvalidArgument(
        fmt::format("{} alone: --kv-type sets one format for keys and values; give --kv-type {}",
                    keys.empty() ? "-ctv" : "-ctk", keys.empty() ? values : keys));
  }
  if (keys != values) {
    return InvalidArgument(fmt::format(
        "-ctk and -ctv: --kv-type sets one format for keys and values; found \"{}\" and \"{}\"",
        keys, values));
  }
  if (!keys.empty()) arguments->insert(arguments->end(), {"--kv-type", keys});
  return OkStatus();
}

}  // namespace

Result<std::vector<std::string>> WithoutForeignOptions(std::span<const OptionRow* const> rows,
                                                       std::span<const std::string> arguments) {
  std::vector<std::string> ours;
  std::string keys;
  std::string values;
  for (size_t at = 0; at < arguments.size();) {
    const SplitArgument argument = SplitAtEquals(arguments[at]);
    if (arguments[at] == "--") {
      ours.insert(ours.end(), arguments.begin() + static_cast<ptrdiff_t>(at), arguments.end());
      break;
    }
    if (const OptionRow* row = FindRow(rows, argument.name); row != nullptr) {
      const size_t end = std::min(at + NumArguments(argument, TakesValue(*row)), arguments.size());
      for (; at < end; ++at) ours.push_back(arguments[at]);
      continue;
    }
    const bool has_next = at + 1 < arguments.size();
    const auto value = [&]() -> std::string {
      if (argument.value.has_value()) return std::string(*argument.value);
      return has_next ? arguments[at + 1] : "";
    };
    const bool is_keys = argument.name == "-ctk" || argument.name == "--cache-type-k";
    if (is_keys || argument.name == "-ctv" || argument.name == "--cache-type-v") {
      (is_keys ? keys : values) = value();
      at += NumArguments(argument, true);
      continue;
    }
    const ForeignOption* const foreign = FindForeign(argument.name);
    if (foreign == nullptr) {
      ours.push_back(arguments[at++]);
      continue;
    }
    if (!foreign->ours.empty()) {
      const std::string_view target = foreign->ours.substr(0, foreign->ours.find('='));
      if (FindRow(rows, target) == nullptr) {
        return NotHere(argument.name, fmt::format("{}, which this command does not take", target));
      }
      ours.emplace_back(foreign->ours);
      if (argument.value.has_value() || (foreign->takes_value && has_next)) ours.push_back(value());
    } else {
      const bool is_always = foreign->takes_value
                                 ? !value().empty() && HasName(foreign->always, value())
                                 : foreign->always == kFlagAlways;
      if (!is_always) return NotHere(argument.name, foreign->hint);
    }
    at += NumArguments(argument, foreign->takes_value);
  }
  EBB_RETURN_IF_ERROR(AppendCacheTypes(keys, values, &ours));
  return ours;
}

Result<std::vector<std::string>> WithoutBareWords(std::span<const OptionRow* const> rows,
                                                  std::span<const std::string> arguments) {
  std::vector<std::string> all(arguments.begin(), arguments.end());
  const bool takes_words =
      std::ranges::any_of(rows, [](const OptionRow* row) { return !row->names.starts_with('-'); });
  if (takes_words || FindRow(rows, "--model") == nullptr) return all;
  std::vector<std::string> words;
  std::vector<std::string> others;
  bool has_model = false;
  bool has_prompt = false;
  for (size_t at = 0; at < all.size();) {
    const SplitArgument argument = SplitAtEquals(all[at]);
    const OptionRow* const row = FindRow(rows, argument.name);
    if (row == nullptr && !all[at].starts_with('-') && !all[at].empty()) {
      words.push_back(all[at++]);
      continue;
    }
    // Leaves an unknown option to the parser, which reports it: the words after the option may be
    // its value, so that they cannot be taken for a model and a prompt.
    if (row == nullptr && all[at] != "-") return all;
    const std::string name = row == nullptr ? "" : LongName(*row);
    has_model = has_model || name == "--model" || name == "--hf-repo";
    has_prompt = has_prompt || name == "--prompt" || name == "--file";
    const bool takes_value = row != nullptr && TakesValue(*row);
    const size_t end = std::min(at + NumArguments(argument, takes_value), all.size());
    for (; at < end; ++at) others.push_back(all[at]);
  }
  if (words.empty()) return all;
  const bool takes_prompt = FindRow(rows, "--prompt") != nullptr;
  if (has_model) {
    return InvalidArgument(fmt::format(
        "{}: {}", fmt::join(words, " "),
        takes_prompt ? "a prompt follows -p, in quotes" : "this command takes options alone"));
  }
  if (words.front().find(' ') != std::string::npos) {
    return InvalidArgument(
        fmt::format("\"{}\" is no model; a prompt follows -p, a model -m", words.front()));
  }
  if (FindRow(rows, "--port") != nullptr &&
      std::ranges::all_of(words.front(), [](char c) { return c >= '0' && c <= '9'; })) {
    return InvalidArgument(fmt::format("{0}: a port follows --port: --port {0}", words.front()));
  }
  others.insert(others.end(), {"--model", words.front()});
  const std::string prompt = fmt::format("{}", fmt::join(words.begin() + 1, words.end(), " "));
  if (prompt.empty()) return others;
  if (!takes_prompt || has_prompt) {
    return InvalidArgument(fmt::format("{}: {}", prompt,
                                       takes_prompt ? "the prompt is given by -p or -f already"
                                                    : "`ebb run MODEL PROMPT` answers a prompt"));
  }
  others.insert(others.end(), {"--prompt", prompt});
  return others;
}

std::string_view HintForCommand(std::string_view name) {
  const auto found = std::ranges::find(kForeignCommands, name,
                                       &std::pair<std::string_view, std::string_view>::first);
  return found == kForeignCommands.end() ? std::string_view() : found->second;
}

}  // namespace ebb::cli
