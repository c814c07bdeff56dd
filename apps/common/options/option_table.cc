#include <algorithm>
#include <array>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "apps/common/models/model_name.h"
#include "apps/common/options/option_values.h"
#include "apps/common/options/options.h"
#include "apps/common/options/whole_file.h"
#include "ebb/recent_windows.h"
#include "src/base/text/size_text.h"

namespace ebb::cli {
namespace {

using G = OptionGroup;

// Returns the row of an option whose value a function of the library parses.
template <typename Parse>
OptionRow ParsedRow(OptionGroup group, std::string names, std::string value, std::string help,
                    Parse parse) {
  return {group, std::move(names), std::move(value), std::move(help), parse, nullptr};
}

Status ReadDraftKvType(std::string_view text, CliOptions* options) {
  const auto type = CompressedKvType(text);
  if (!type.has_value()) {
    return InvalidArgument(fmt::format("expected q8, q4, q3 or q2, found \"{}\"", text));
  }
  options->engine.draft_compressed_type = type;
  return OkStatus();
}

// Reads the value of --grammar FILE|TEXT: the content of the file of that name if there is one,
// else the grammar itself.
Status ReadGrammar(std::string_view text, CliOptions* options) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(text, error)) {
    if (text.find("::=") == std::string_view::npos) {
      return InvalidArgument(fmt::format(
          "expected a file or a GBNF grammar, found \"{}\", which is neither a file nor has a rule "
          "(root ::= ...)",
          text));
    }
    options->sampling.grammar = text;
    return OkStatus();
  }
  EBB_ASSIGN_OR_RETURN(options->sampling.grammar, ReadWholeFile(std::string(text)));
  return OkStatus();
}

// Replaces the usual sequence breakers at the first use of the option, and appends at each further
// one.
Status ReadSequenceBreaker(std::string_view text, CliOptions* options) {
  std::vector<std::string>& breakers = options->sampling.dry_sequence_breakers;
  if (!options->has_own_sequence_breakers) breakers.clear();
  options->has_own_sequence_breakers = true;
  if (text != "none") breakers.emplace_back(text);
  return OkStatus();
}

Status ReadTemplate(std::string_view text, CliOptions* options) {
  if (text != "chatml" && text.find('{') == std::string_view::npos) {
    return InvalidArgument(fmt::format(
        "expected chatml or a Jinja text, found \"{}\"; --chat-template-file reads a file", text));
  }
  options->model.chat_template = text;
  return OkStatus();
}

Status ReadTemplateFile(std::string_view text, CliOptions* options) {
  EBB_ASSIGN_OR_RETURN(options->model.chat_template, ReadWholeFile(std::string(text)));
  if (!options->model.chat_template.empty()) return OkStatus();
  return InvalidArgument("expected a chat template, found an empty file");
}

Status ReadHubRepo(std::string_view text, CliOptions* options) {
  EBB_ASSIGN_OR_RETURN(const ModelName name, ParseModelName(fmt::format("hf:{}", text)));
  options->model.path = name.text;
  return OkStatus();
}

Status ReadBudget(std::string_view text, CliOptions* options) {
  EBB_ASSIGN_OR_RETURN(options->session.policy.budget, ParseBudget(text));
  return OkStatus();
}

Status ReadGranularity(std::string_view text, CliOptions* options) {
  EBB_ASSIGN_OR_RETURN(options->session.policy.granularity, ParseGranularity(text));
  return OkStatus();
}

Status ReadSeed(std::string_view text, CliOptions* options) {
  options->draws_seed = text == "random" || text == "-1";
  if (options->draws_seed) return OkStatus();
  if (ParseValue(text, {}, &options->seed).ok()) return OkStatus();
  return InvalidArgument(
      fmt::format("expected an integer from 0 to 2^64 - 1, random or -1, found \"{}\"", text));
}

Status ReadKvCap(std::string_view text, CliOptions* options) {
  EBB_RETURN_IF_ERROR(CheckHasUnit(text, "MiB"));
  EBB_ASSIGN_OR_RETURN(options->engine.kv_cap_bytes, ParseBytes(text));
  return OkStatus();
}

Status ReadPolicy(std::string_view text, CliOptions* options) {
  return ParsePolicy(text, &options->session.policy);
}

// Returns the row of --kv-type. Its values q8, q4, q3 and q2 are short for --t1 none --t2
// old:int8, old:int4, old:int3 and old:int2, which SettleTiers() sets.
OptionRow KvTypeRow() {
  OptionRow row = ChoiceRow<RowType>(
      G::kKvType, "--kv-type",
      "number format of cached rows; q8, q4, q3 and q2 compress all rows except " +
          RowsInT0Text(kNewestBesideT2) +
          ", as --t1 none --t2 old:int8 (int4, int3, int2) does, and compute in f16",
      [](CliOptions& o) { return &o.engine.kv_type; },
      {{"f16", RowType::kF16}, {"bf16", RowType::kBf16}, {"f32", RowType::kF32}});
  row.value += "|q8|q4|q3|q2";
  row.parse = [parse = std::move(row.parse), list = row.value](std::string_view text,
                                                               CliOptions* options) {
    options->compressed = CompressedKvType(text);
    // With these four the rows of T0 keep f16.
    if (parse(options->compressed.has_value() ? "f16" : text, options).ok()) return OkStatus();
    return InvalidArgument(fmt::format("expected {}, found \"{}\"", list, text));
  };
  return row;
}

std::vector<OptionRow> ModelRows() {
  return {
      NameRow(
          G::kModelFile, "-m,--model", "FILE|NAME",
          "the model: a GGUF file, a name that `ebb pull --list` shows (a file of that name is "
          "./NAME), hf:ORG/REPO[:QUANT|/FILE], ollama:NAME[:TAG] or an https URL, downloaded if "
          "missing, or a small reasoner inside the program: `pebble`, or `pebble-dms` and "
          "`pebble-dms-8`, which mark rows to evict; without it, the one that `ebb pull` "
          "fetched, and for `ebb-lab eval --task pebble` pebble",
          [](CliOptions& o) { return &o.model.path; }),
      {G::kModelFile, "-hf,--hf-repo", "ORG/REPO[:QUANT]",
       "short for -m hf:ORG/REPO[:QUANT], a model of Hugging Face's hub, as in llama.cpp; the "
       "default "
       "quantization is Q4_K_M, else Q8_0, else that of the repository's first file",
       ReadHubRepo, nullptr},
      NameRow(G::kModel, "--adapter", "FILE",
              "a GGUF file that makes the model mark rows, for --policy dms (docs/dev/formats.md)",
              [](CliOptions& o) { return &o.model.adapter; }),
      {G::kModel, "--chat-template", "chatml|JINJA", "a chat template in place of the file's own",
       ReadTemplate, nullptr},
      {G::kModel, "--chat-template-file", "FILE",
       "the same, in Jinja in a file: for models whose file has an old or a broken one",
       ReadTemplateFile, nullptr},
      FlagRow(
          G::kModel, "--dequantize", "hold the weights as F32, for studies of exactness",
          [](CliOptions& o) { return &o.model.weights; }, WeightMode::kDequantize),
      ChoiceRow<RopeScaling>(
          G::kModel, "--rope-scaling",
          "scaling of positions past the trained context, in place of the file's",
          [](CliOptions& o) { return &o.model.rope_scaling; },
          {{"none", RopeScaling::kNone},
           {"linear", RopeScaling::kLinear},
           {"yarn", RopeScaling::kYarn}}),
      ValueRow(G::kModel, "--rope-factor", "X",
               "factor by which --rope-scaling linear or yarn extends the trained context",
               [](CliOptions& o) { return &o.model.rope_factor; }, {.min = 1, .max = 1000}),
  };
}

std::vector<OptionRow> MachineRows() {
  return {
      ValueRow(G::kThreads, "--threads", "N",
               "compute threads; 0: one per core of the affinity mask, at most the cgroup's quota",
               [](CliOptions& o) { return &o.engine.threads; }, {.min = 0, .max = 512}),
      {G::kSeed, "--seed", "S|random",
       "seed of sampling and of randomized policies; random, or -1, draws a new seed each time and "
       "prints it",
       ReadSeed, [](const CliOptions& o) { return std::to_string(o.seed); }},
      ValueRow(G::kContext, "--context", "N",
               "tokens that the sequence may have; 0: the trained context, times the rope factor",
               [](CliOptions& o) { return &o.session.context; }, {.min = 0}),
      ChoiceRow<PastContext>(
          G::kContext, "--past-context",
          "behaviour at the end of the context: generation ends, or keys are re-rotated to "
          "their rank among the surviving rows",
          [](CliOptions& o) { return &o.session.past_context; },
          {{"refuse", PastContext::kRefuse}, {"rerotate", PastContext::kReRotate}}),
      KvTypeRow(),
      ParsedRow(G::kContext, "--kv-cap", "SIZE",
                "hard cap on the memory of cached rows, such as 512MiB or 1.5Gi (M is 10^6, Mi is "
                "2^20); --kv-type q8 to q2 take it too, and other tiers caps by --t0 and --t1",
                ReadKvCap),
  };
}

std::vector<OptionRow> PolicyRows() {
  return {
      ParsedRow(G::kPolicy, "--policy", "NAME[:KEY=VALUE,...]",
                "the policy, which selects the rows to keep (default: full)", ReadPolicy),
      ValueRow(G::kPolicy, "--scorer", "NAME", "score rows by another scorer than the policy's own",
               [](CliOptions& o) { return &o.session.policy.scorer; }),
      ParsedRow(G::kPolicy, "--budget", "ROWS|PERCENT|BYTES|1/CR",
                "the amount to keep: 1024 rows, +1024 beyond the protected ones, 25% of the rows "
                "that the policy counts (--list-policies), 64MiB, or 1/8 of the context",
                ReadBudget),
      ValueRow(
          G::kPolicy, "--sinks", "N",
          fmt::format("tokens that are never evicted: the first generated ones, or for streaming "
                      "the first of the sequence; {} if the policy has no default",
                      kDefaultSinks),
          [](CliOptions& o) { return &o.session.policy.sinks; }, {.min = 0}),
      ValueRow(G::kPolicy, "--window", "N",
               fmt::format("newest tokens that are never evicted; {} if the policy has no default",
                           kDefaultWindow),
               [](CliOptions& o) { return &o.session.policy.window; }, {.min = 0}),
      ValueRow(
          G::kPolicy, "--interval", "N",
          fmt::format("generated tokens between two decisions; {} if the policy has no default",
                      kDefaultInterval),
          [](CliOptions& o) { return &o.session.policy.interval; }, {.min = 1}),
      ParsedRow(G::kPolicy, "--granularity", "token|layer|head",
                "unit of a decision: all layers together, each layer, or each kv head",
                ReadGranularity),
      FlagRow(
          G::kPolicy, "--list-policies", "print the policies and scorers, and end",
          [](CliOptions& o) { return &o.list_policies; }, true),
  };
}

std::vector<OptionRow> PromptRows() {
  return {
      ValueRow(G::kPrompt, "-p,--prompt", "TEXT",
               "the prompt; without -p and -f, stdin without its last newline",
               [](CliOptions& o) { return &o.prompt; }),
      NameRow(G::kPrompt, "-f,--file", "FILE",
              "read the prompt from a file, without its last newline",
              [](CliOptions& o) { return &o.prompt_file; }),
      FlagRow(
          G::kPrompt, "--raw", "continue the prompt as it is, without the chat template",
          [](CliOptions& o) { return &o.raw; }, true),
      ValueRow(G::kSystem, "--system", "TEXT", "a system message before the first turn",
               [](CliOptions& o) { return &o.system; }),
      NameRow(G::kSession, "--session", "FILE",
              "resume the session in this file, if there is one, and save it there at the end of "
              "every turn; one process at a time; without a prompt `run` continues an unfinished "
              "answer",
              [](CliOptions& o) { return &o.session_file; }),
  };
}

std::vector<OptionRow> GenerationRows() {
  return {
      ValueRow(G::kGeneration, "-n,--tokens", "N",
               "largest number of tokens to generate; -1: no limit",
               [](CliOptions& o) { return &o.max_tokens; }, {.min = -1}),
      ValueRow(G::kSampling, "--temp", "X", "temperature; 0 always takes the likeliest token",
               [](CliOptions& o) { return &o.sampling.temperature; }, {.min = 0, .max = 100}),
      ValueRow(G::kSampling, "--top-k", "N", "sample among the N likeliest; 0: all",
               [](CliOptions& o) { return &o.sampling.top_k; }, {.min = 0}),
      ValueRow(G::kSampling, "--top-p", "X",
               "sample among the likeliest that together have probability X",
               [](CliOptions& o) { return &o.sampling.top_p; }, {.min = 0, .max = 1}),
      ValueRow(G::kSampling, "--min-p", "X",
               "sample among those at least X times as likely as the likeliest",
               [](CliOptions& o) { return &o.sampling.min_p; }, {.min = 0, .max = 1}),
      ValueRow(G::kSampling, "--repeat-penalty", "X",
               "divide the logits of recent tokens of prompt and answer by X; 1: off",
               [](CliOptions& o) { return &o.sampling.repeat_penalty; }, {.min = 0.01, .max = 100}),
      ValueRow(G::kSampling, "--repeat-last-n", "N",
               "penalties count the last N tokens of the prompt and the answer; -1: all of them",
               [](CliOptions& o) { return &o.sampling.repeat_last_n; }, {.min = -1}),
      ValueRow(G::kSampling, "--presence-penalty", "X",
               "subtract X from the logits of tokens that occur among them; 0: off",
               [](CliOptions& o) { return &o.sampling.presence_penalty; }, {.min = -2, .max = 2}),
      ValueRow(G::kSampling, "--frequency-penalty", "X",
               "subtract X for each time that a token occurs among them; 0: off",
               [](CliOptions& o) { return &o.sampling.frequency_penalty; }, {.min = -2, .max = 2}),
      ValueRow(G::kSampling, "--dynatemp-range", "X",
               "vary the temperature by up to X with the entropy of the candidates; 0: off",
               [](CliOptions& o) { return &o.sampling.dynatemp_range; }, {.min = 0, .max = 100}),
      ValueRow(G::kSampling, "--dynatemp-exp", "X", "the power of the entropy in --dynatemp-range",
               [](CliOptions& o) { return &o.sampling.dynatemp_exponent; }, {.min = 0, .max = 100}),
      ValueRow(G::kSampling, "--typical", "X",
               "sample among the tokens nearest to the expected surprise that together have "
               "probability X; 1: off",
               [](CliOptions& o) { return &o.sampling.typical_p; }, {.min = 0, .max = 1}),
      ValueRow(G::kSampling, "--top-n-sigma", "X",
               "sample among logits within X standard deviations of the largest; 0 or less: off",
               [](CliOptions& o) { return &o.sampling.top_n_sigma; }, {.min = -1, .max = 100}),
      ValueRow(G::kSampling, "--xtc-probability", "X",
               "probability of removing all tokens of at least --xtc-threshold except the least "
               "likely of them; 0: off",
               [](CliOptions& o) { return &o.sampling.xtc_probability; }, {.min = 0, .max = 1}),
      ValueRow(G::kSampling, "--xtc-threshold", "X",
               "probability from which --xtc-probability removes tokens; above 0.5: off",
               [](CliOptions& o) { return &o.sampling.xtc_threshold; }, {.min = 0, .max = 1}),
      ValueRow(G::kSampling, "--dry-multiplier", "X",
               "penalty of tokens that repeat a sequence, times --dry-base to the power of its "
               "length; 0: off",
               [](CliOptions& o) { return &o.sampling.dry_multiplier; }, {.min = 0, .max = 100}),
      ValueRow(G::kSampling, "--dry-base", "X", "base of the growth of --dry-multiplier's penalty",
               [](CliOptions& o) { return &o.sampling.dry_base; }, {.min = 1, .max = 100}),
      ValueRow(G::kSampling, "--dry-allowed-length", "N",
               "sequences up to so many tokens have no penalty of --dry-multiplier",
               [](CliOptions& o) { return &o.sampling.dry_allowed_length; }, {.min = 0}),
      ValueRow(G::kSampling, "--dry-penalty-last-n", "N",
               "--dry-multiplier searches the last N tokens; -1: the trained context",
               [](CliOptions& o) { return &o.sampling.dry_penalty_last_n; },
               {.min = -1, .max = 10000000}),
      {G::kSampling, "--dry-sequence-breaker", "TEXT",
       "a text that ends repeated sequences, in place of the defaults; may be given more "
       "than once; none: no such text",
       ReadSequenceBreaker, nullptr, true},
      ValueRow(
          G::kSampling, "--mirostat", "N",
          "keep the surprise of tokens near --mirostat-ent by Mirostat 1 or 2, in place of all "
          "other samplers but penalties and temperature; 0: off",
          [](CliOptions& o) { return &o.sampling.mirostat; }, {.min = 0, .max = 2}),
      ValueRow(G::kSampling, "--mirostat-ent", "X", "target surprise of --mirostat, in bits",
               [](CliOptions& o) { return &o.sampling.mirostat_tau; }, {.min = 0, .max = 100}),
      ValueRow(G::kSampling, "--mirostat-lr", "X", "learning rate of --mirostat",
               [](CliOptions& o) { return &o.sampling.mirostat_eta; }, {.min = 0, .max = 100}),
      {G::kSampling, "--samplers", "NAME;NAME...", "the samplers that run, in this order",
       [](std::string_view text, CliOptions* options) {
         EBB_ASSIGN_OR_RETURN(options->sampling.samplers, ParseSamplerStages(text));
         return OkStatus();
       },
       [](const CliOptions& o) {
         std::vector<std::string_view> names;
         for (const SamplerStage stage : o.sampling.samplers)
           names.push_back(SamplerStageName(stage));
         return fmt::format("{}", fmt::join(names, ";"));
       }},
      ParsedRow(G::kGeneration, "--grammar", "FILE|TEXT",
                "a GBNF grammar that the answer obeys; thoughts are free", ReadGrammar),
      ValueRow(G::kGeneration, "--stop", "TEXT",
               "end before this text, which is searched for after the thought; may be given more "
               "than once",
               [](CliOptions& o) { return &o.stops; }),
      FlagRow(
          G::kGeneration, "--ignore-eos", "never choose an end token",
          [](CliOptions& o) { return &o.ignore_eos; }, true),
      ValueRow(G::kGeneration, "--thinking-budget", "N",
               "most tokens of a thought, after which ebb closes it; -1: no limit",
               [](CliOptions& o) { return &o.thinking_budget; }, {.min = -1}),
      ChoiceRow<Speculation>(
          G::kSpeculation, "--speculate",
          "guess tokens that may come next and compute several in one step, while that is faster; "
          "the text stays the same bit for bit. lookup: guess what followed the last tokens when "
          "they occurred before; model: by --draft-model; mtp: by the model's own layer for "
          "multi-token prediction; eagle3, assistant, dflash: by a head of that kind that "
          "--draft-model names; auto: by lookup and one of these, if there is one",
          [](CliOptions& o) { return &o.speculation; },
          {{"auto", Speculation::kAuto},
           {"off", Speculation::kOff},
           {"lookup", Speculation::kLookup},
           {"model", Speculation::kModel},
           {"mtp", Speculation::kMtp},
           {"eagle3", Speculation::kEagle3},
           {"assistant", Speculation::kAssistant},
           {"dflash", Speculation::kDflash}}),
      ValueRow(G::kSpeculation, "-md,--draft-model", "FILE|NAME",
               "a smaller model with the same vocabulary, or a head for the model, which guesses "
               "tokens for --speculate; its weights and cache count towards --memory",
               [](CliOptions& o) { return &o.draft_model; }),
      ParsedRow(G::kSpeculation, "--draft-kv-type", "q8|q4|q3|q2",
                "compress the old rows of the draft model's cache", ReadDraftKvType),
      FlagRow(
          G::kSpeculation, "--speculate-inexact",
          "guess also for the few models whose rounding then depends on the guesses",
          [](CliOptions& o) { return &o.session.guesses_inexactly; }, true),
      ValueRow(G::kSpeculation, "--speculate-min", "N",
               "least guesses of a step, whether or not they pay, where there are any",
               [](CliOptions& o) { return &o.session.least_guesses; },
               {.min = 0, .max = kMostTokensWithGuesses - 1}),
      ValueRow(G::kSpeculation, "--speculate-max", "N", "most guesses of a step",
               [](CliOptions& o) { return &o.session.most_guesses; },
               {.min = 1, .max = kMostTokensWithGuesses - 1}),
  };
}

std::vector<OptionRow> DisplayRows() {
  return {
      ChoiceRow<Thoughts>(
          G::kDisplay, "--thoughts",
          "print, dim or omit thoughts; dim is show if stdout is no terminal, with TERM=dumb or "
          "with NO_COLOR",
          [](CliOptions& o) { return &o.thoughts; },
          {{"show", Thoughts::kShow}, {"dim", Thoughts::kDim}, {"hide", Thoughts::kHide}}),
      FlagRow(
          G::kDisplay, "--live",
          "colour each token by the tier that most groups have it in (T0 green, T1 cyan, T2 "
          "yellow, T3 grey and crossed out), redrawn as tiers change; plain text if stdout is no "
          "terminal",
          [](CliOptions& o) { return &o.live; }, true),
      FlagRow(
          G::kQuiet, "--quiet", "no progress, announcements or summary on stderr",
          [](CliOptions& o) { return &o.quiet; }, true),
      FlagRow(
          G::kJson, "--json", "write results as JSON, one object a line",
          [](CliOptions& o) { return &o.json; }, true),
      NameRow(G::kLogprobs, "--logprobs", "FILE",
              "write a line of JSON for each generated token, those of a stop string included: its "
              "logarithmic probability by the "
              "model alone, before temperature, penalties and grammar",
              [](CliOptions& o) { return &o.logprobs_file; }),
      ValueRow(G::kLogprobs, "--top-logprobs", "N",
               "in the file of --logprobs, with each token the N likeliest tokens of its position",
               [](CliOptions& o) { return &o.top_logprobs; }, {.min = 0}),
      ChoiceRow<DocsForm>(
          G::kDocs, "--as",
          "the reference of docs/user, the manual page, a shell's completions, or a file for `ebb "
          "serve --config`",
          [](CliOptions& o) { return &o.docs_form; },
          {{"markdown", DocsForm::kMarkdown},
           {"man", DocsForm::kMan},
           {"bash", DocsForm::kBash},
           {"zsh", DocsForm::kZsh},
           {"fish", DocsForm::kFish},
           {"config", DocsForm::kConfig}}),
  };
}

}  // namespace

std::string_view OptionGroupTitle(OptionGroup group) {
  switch (group) {
    case G::kModelFile:
    case G::kModel:
      return "Model";
    case G::kThreads:
    case G::kSeed:
    case G::kContext:
    case G::kKvType:
    case G::kMemory:
      return "Machine and cache";
    case G::kPolicy:
      return "Policy";
    case G::kLossless:
      return "Lossless";
    case G::kPrompt:
      return "Prompt";
    case G::kSystem:
    case G::kSession:
      return "Conversation";
    case G::kGeneration:
    case G::kSpeculation:
    case G::kSampling:
      return "Generation";
    case G::kDisplay:
    case G::kQuiet:
    case G::kJson:
    case G::kLogprobs:
      return "Output";
    case G::kServe:
      return "Server";
    case G::kPull:
      return "Pull";
    case G::kRemove:
      return "Remove";
    case G::kFit:
      return "Fit";
    case G::kFidelity:
      return "Fidelity";
    case G::kProfile:
      return "Profile";
    case G::kTask:
    case G::kEval:
    case G::kImportance:
      return "Evaluation";
    case G::kBenchDepth:
    case G::kBenchDecode:
    case G::kBenchGenerate:
    case G::kBenchPrompt:
    case G::kBenchLossless:
    case G::kBenchColumns:
    case G::kBenchAttention:
    case G::kBenchMemory:
    case G::kBenchProducts:
    case G::kBench:
      return "Measurement";
    case G::kDocs:
      return "Documentation";
  }
  return "";
}

std::span<const OptionGroup> ModelGroups() {
  static constexpr std::array kGroups = {G::kModelFile, G::kModel,   G::kThreads,
                                         G::kSeed,      G::kContext, G::kKvType};
  return kGroups;
}

std::vector<OptionRow> SharedOptions() {
  std::vector<OptionRow> all;
  for (const auto& rows :
       {PromptRows(), ModelRows(), GenerationRows(), PolicyRows(), MachineRows(), DisplayRows()}) {
    all.insert(all.end(), rows.begin(), rows.end());
  }
  AppendTierOptionRows(&all);
  AppendLosslessOptionRows(&all);
  AppendFitOptionRows(&all);
  return all;
}

}  // namespace ebb::cli
