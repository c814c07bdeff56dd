// Declares CliOptions, the options of the command line. They fill in the structs of include/ebb
// directly; the other members are about files and terminals. CliOptions also holds the structs of
// options that only one program takes, by their type.
//
// Tables declare each option once: option_table.cc those that several programs take, and each
// program its own. The parser, --help and the references in docs/user are generated from the
// tables.
#ifndef EBB_APPS_OPTIONS_OPTIONS_H_
#define EBB_APPS_OPTIONS_OPTIONS_H_

#include <any>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <typeindex>
#include <vector>

#include "apps/common/options/fit_options.h"
#include "apps/common/options/given_options.h"
#include "apps/common/terminal/output.h"
#include "ebb/engine.h"
#include "ebb/generate.h"
#include "ebb/model.h"
#include "ebb/status.h"

namespace ebb::cli {

// LosslessInput holds --lossless and the options that belong to it.
struct LosslessInput {
  bool wanted = false;
  LosslessOptions options;
  std::string option_given;                // one that needs --lossless; empty: none
  std::optional<PolicySpec> draft;         // policy of --draft, without other members
  std::optional<TierSetting> draft_reads;  // --draft select: its members t1_read and t1_*
  bool length_given = false;
  bool verify_given = false;
};

enum class DocsForm { kMarkdown, kMan, kBash, kZsh, kFish, kConfig };

class OwnOptions {
 public:
  // Returns the options of one program's commands, which `T` declares: `options.Of<EvalInput>()`.
  template <typename T>
  [[nodiscard]] T& Of() {
    std::any& own = by_type_[typeid(T)];
    if (!own.has_value()) own = T();
    return *std::any_cast<T>(&own);
  }
  template <typename T>
  [[nodiscard]] const T& Of() const {
    static const T defaults;
    const auto own = by_type_.find(typeid(T));
    return own == by_type_.end() ? defaults : *std::any_cast<T>(&own->second);
  }

 private:
  std::map<std::type_index, std::any> by_type_;
};

// GivenWord is an option as it was given: its long name, and its value unless it is a flag.
struct GivenWord {
  std::string name;
  std::optional<std::string> value;
};

struct CliOptions : OwnOptions {
  // model.path is what -m says, a file or a name; empty when -m was not given. See OpenModel() in
  // setup.h.
  ModelOptions model;
  EngineOptions engine;
  SessionOptions session;  // policy included
  SamplingOptions
      sampling;  // `grammar` holds the grammar itself, read from the file if one was named
  bool has_own_sequence_breakers = false;  // --dry-sequence-breaker was given
  uint64_t seed = 0;                       // copied into sampling and policy after parsing
  bool draws_seed = false;                 // --seed random: `seed` is drawn after parsing

  std::optional<std::string> prompt;  // -p
  std::string prompt_file;            // -f
  std::string system;                 // --system
  std::string session_file;           // --session
  bool raw = false;
  int max_tokens = -1;
  std::vector<std::string> stops;
  bool ignore_eos = false;
  int thinking_budget = -1;
  // Holds --speculate; RunProgram() copies it into session.speculation for commands that generate.
  Speculation speculation = Speculation::kAuto;
  std::string draft_model;  // --draft-model, a file or a name; empty: none was given
  Thoughts thoughts = Thoughts::kShow;

  // Lists the options that were given, of the command line or a file, for commands that print a
  // command.
  std::vector<GivenWord> given;
  GivenOptions shared;                       // which option set each field that several options set
  std::optional<CompressedType> compressed;  // --kv-type q8, q4, q3 or q2
  LosslessInput lossless;
  std::string logprobs_file;  // --logprobs
  int top_logprobs = 0;       // --top-logprobs
  bool live = false;

  bool list_policies = false;
  bool json = false;
  bool quiet = false;

  FitInput fit;
  DocsForm docs_form = DocsForm::kMarkdown;  // --as
};

// OptionGroup is a set of options under one heading in --help and docs/user/cli.md. A command lists
// the groups that it takes.
enum class OptionGroup {
  kPrompt,       // -p, -f, --raw
  kSystem,       // --system
  kSession,      // --session
  kModelFile,    // -m, -hf
  kModel,        // --adapter, --dequantize, --rope-*
  kGeneration,   // -n, --grammar, --stop, ...
  kSpeculation,  // --speculate, --draft-model, ...
  kSampling,     // --temp, --top-k, --top-p, --min-p, --repeat-penalty
  kPolicy,       // --policy, --scorer, --budget, ... --list-policies
  kLossless,     // --lossless, --verify, --draft, --draft-min, --draft-max, --no-draft-lookup
  kThreads,      // --threads
  kSeed,         // --seed
  kContext,      // --context, --past-context, --kv-cap
  kKvType,       // --kv-type
  kDisplay,      // --thoughts, --live
  kQuiet,        // --quiet
  kJson,         // --json
  kLogprobs,     // --logprobs, --top-logprobs
  kFidelity,     // of ebb-lab fidelity alone
  kMemory,       // --memory
  kProfile,      // of ebb-lab profile alone
  kTask,         // --task, --problems, --out, ...
  kEval,         // of ebb-lab eval alone
  kImportance,   // of ebb-lab importance alone
  kServe,        // of ebb serve alone: --host, --port, ...
  kPull,         // of ebb pull alone: NAME, --list
  kRemove,       // of ebb rm alone: NAME
  kFit,          // of ebb fit alone: --prompt-tokens, --requests
  // kBenchDepth and the groups up to kBench belong to commands of ebb-bench.
  kBenchDepth,      // --depth
  kBenchDecode,     // --no-mass, --tokens
  kBenchGenerate,   // --generate, --sequences
  kBenchPrompt,     // --prompt
  kBenchLossless,   // --tokens, --accept
  kBenchColumns,    // --columns
  kBenchAttention,  // --depth, --keep, --compressed
  kBenchMemory,     // --bytes
  kBenchProducts,   // --types, --columns, --rows, --batch, --bytes
  kBench,           // --repetitions
  kDocs,            // --as
};
[[nodiscard]] std::string_view OptionGroupTitle(OptionGroup group);
// Returns the groups of options about the model and the machine, which every command that runs a
// model takes.
[[nodiscard]] std::span<const OptionGroup> ModelGroups();

// OptionRow declares one option: its names, its help and how its value is parsed.
struct OptionRow {
  OptionGroup group;
  std::string names;  // "-m,--model"
  std::string value;  // "FILE"; empty: a flag
  std::string help;   // one sentence, no full stop
  // Parses `text`, the value that was given, and stores it in *options; ignores `text` for a flag.
  // Errors name the valid values.
  std::function<Status(std::string_view text, CliOptions* options)> parse;
  // Returns the current value, which help shows as "(default: ...)". If the function is null or
  // returns an empty text, help shows no default.
  std::function<std::string(const CliOptions&)> show;
  bool is_repeatable = false;  // each occurrence adds a value
};
// Returns the spellings of an option, such as "-m" and "--model".
[[nodiscard]] std::vector<std::string_view> NamesOf(const OptionRow& row);
// Returns the name that messages use: the long one ("--model" of "-m,--model").
[[nodiscard]] std::string LongName(const OptionRow& row);
// Parses `text` into the option's member of *options. Errors: a value that the option does not
// take, or another option in options->shared that sets the same field.
[[nodiscard]] Status SetOption(const OptionRow& row, std::string_view text, CliOptions* options);

// Appends the options of the tiers below T0, and of the device.
void AppendTierOptionRows(std::vector<OptionRow>* table);
void AppendLosslessOptionRows(std::vector<OptionRow>* table);
// Returns the shared fields that --draft sets with this value.
[[nodiscard]] std::vector<SharedField> FieldsOfDraft(std::string_view text);
// Sets the tiers that --kv-type q8, q4, q3 or q2 selects, and those that --lossless or --t1 alone
// need, after all options were read. Errors: --t0 PERCENT together with --t2 old.
[[nodiscard]] Status SettleTiers(CliOptions* options);
// Sets the session's lossless options from --lossless and --draft, after SettleTiers(). Errors:
// options that need --lossless, if it is missing.
[[nodiscard]] Status SettleLossless(CliOptions* options);
// Gives a lossless session the default draft unless an option named its policy.
void ChooseDraft(CliOptions* options);
// Gives every draft the same number of tokens, for commands that must give the same results in
// every run. Errors: options that ask for a varying length.
[[nodiscard]] Status FixDraftLength(CliOptions* options);
// Returns the options that several programs take, in the order in which help shows them.
[[nodiscard]] std::vector<OptionRow> SharedOptions();

}  // namespace ebb::cli

#endif  // EBB_APPS_OPTIONS_OPTIONS_H_
