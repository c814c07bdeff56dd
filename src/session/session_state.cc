// Saves and loads the contents of a session file. session_file.h defines the file's frame,
// sequence_state.h the part about the cache.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

#include "ebb/session_file.h"
#include "ebb/setting_fields.h"
#include "ebb/version.h"
#include "src/base/llama_runtime.h"
#include "src/io/file_lock.h"
#include "src/kv/sequence_state.h"
#include "src/model/loaded/loaded_model.h"
#include "src/sequence/sequence_file.h"
#include "src/session/session_file.h"
#include "src/session/session_impl.h"

namespace ebb {
namespace {

using SessionIdentity = std::vector<std::pair<std::string, std::string>>;

std::string RopeText(const Hyperparameters& h) {
  return fmt::format("base {}, scale {}, of {} tokens, yarn {} {} {} {}{}", h.rope_base,
                     h.rope_frequency_scale, h.rope_original_context, h.yarn_ext_factor,
                     h.yarn_attn_factor, h.yarn_beta_fast, h.yarn_beta_slow,
                     h.has_short_rope_factors ? ", short factors" : "");
}

// Describes the layout of the cache's pages. The number format is not included; it is a property of
// its own.
std::string RowFormatText(const EngineCore& core) {
  const ModelShape& shape = core.model->shape();
  return fmt::format("{} bytes, {} of {} channels, {} kv heads in {} layers",
                     core.format.RowBytes(),
                     shape.has_values ? "a key and a value" : "a key that begins with its value",
                     shape.head_dim, shape.NumStreams(), shape.num_layers);
}

// Describes the rows of T2. Names their number format only if the caller made the policy; otherwise
// the placement's name says it.
std::string T2Text(const Session::Impl& s) {
  const SessionOptions& options = s.sequence->options();
  const CacheStores& stores = s.core->stores.caches();
  const bool may_have_t2 = options.make_policy
                               ? stores.t2 != nullptr
                               : options.policy.tiers.has_value() && HasT2(*options.policy.tiers);
  const std::string name = options.make_policy && may_have_t2
                               ? std::string(CompressedTypeName(*s.core->options.tiers->t2_type))
                               : "the placement's";
  if (!may_have_t2) return name;
  return fmt::format("{}, {} bytes a row{}", name, stores.compressed.RowStride(),
                     stores.compressed.in_ggml_blocks ? ", in blocks of ggml's types" : "");
}

// Returns the properties that a session must have in common with the session that it resumes, in
// the order in which they are compared.
SessionIdentity SessionIdentityOf(const Session::Impl& s) {
  const Model& model = *s.core->model;
  const Sequence& sequence = *s.sequence;
  const Policy& policy = sequence.policy();
  const std::optional<TierSetting> tiers = TiersOf(s.core->options, sequence.options());
  return {
      {"model", fmt::format("{}, fingerprint {:016x}", model.description(), model.fingerprint())},
      {"rope scaling", RopeText(model.loaded().hparams)},
      {"number format of rows", std::string(RowTypeName(s.core->options.kv_type))},
      {"row format", RowFormatText(*s.core)},
      {"recurrent state", fmt::format("{} bytes", model.loaded().hparams.state_bytes)},
      {"choice of T1 rows to read", T1ReadText(sequence.options().policy.tiers)},
      {"policy", policy.name},
      {"scorer", policy.scorer->Name()},
      {"placement of rows in tiers",
       policy.placement == nullptr ? "none" : policy.placement->Name()},
      {"selector", policy.selector == nullptr ? "none" : policy.selector->Name()},
      {"granularity", std::string(GranularityName(policy.granularity))},
      {"T1", tiers.has_value() ? std::string(T1PlaceName(*tiers->engine.t1)) : "no tiers"},
      {"number format of T2", T2Text(s)},
      {"choice of kept rows",
       s.speculator == nullptr ? "those of the policy" : s.speculator->KeptRows()},
  };
}

// Returns the field of a file, which holds a value for a field that need not have one.
template <typename Field>
Field& InFile(Field& field) {
  return field;
}
template <typename Field>
Field& InFile(std::optional<Field>& field) {
  return field.has_value() ? *field : field.emplace();
}

// A file has a value for each field, so LoadTiers() removes those that T0's cap or the lack of a T2
// makes meaningless.
void SaveTiers(const std::optional<TierSetting>& tiers, StateWriter* to) {
  to->Number<uint8_t>(tiers.has_value() ? 1 : 0);
  TierSetting saved = tiers.value_or(TierSetting());
  VisitTierFields(saved, [&](std::string_view, auto& optional) {
    const auto& field = InFile(optional);
    using Field = std::remove_cvref_t<decltype(field)>;
    constexpr bool is_byte = std::is_enum_v<Field> || std::is_same_v<Field, bool>;
    using Saved = std::conditional_t<is_byte, uint8_t, Field>;
    to->Number<Saved>(static_cast<Saved>(field));
  });
}

constexpr T1Place LastOf(T1Place) { return T1Place::kFile; }
constexpr T1Read LastOf(T1Read) { return T1Read::kSelect; }
constexpr T2Rows LastOf(T2Rows) { return T2Rows::kOld; }
constexpr CompressedType LastOf(CompressedType) { return CompressedType::kInt2; }
constexpr EvictOf LastOf(EvictOf) { return EvictOf::kAlive; }

std::optional<TierSetting> LoadTiers(StateReader* from) {
  const bool has_tiers = from->Number<uint8_t>() != 0;
  TierSetting tiers;
  VisitTierFields(tiers, [&](std::string_view name, auto& optional) {
    auto& field = InFile(optional);
    using Field = std::remove_cvref_t<decltype(field)>;
    bool is_valid = true;
    if constexpr (std::is_enum_v<Field>) {
      const auto value = from->Number<uint8_t>();
      is_valid = value <= static_cast<uint8_t>(LastOf(field));
      if (is_valid) field = static_cast<Field>(value);
    } else if constexpr (std::is_same_v<Field, bool>) {
      field = from->Number<uint8_t>() != 0;
    } else {
      field = from->Number<Field>();
      if constexpr (std::is_same_v<Field, double>) is_valid = field >= 0 && field <= 1;
    }
    if (!is_valid) from->Fail(fmt::format("a {} that no tiers have", name));
  });
  if (tiers.engine.t0_cap_bytes > 0) tiers.shares.t0_share.reset();
  if (!HasT2(tiers.shares)) tiers.engine.t2_type.reset();
  return has_tiers ? std::optional(tiers) : std::nullopt;
}

void SaveSessionIdentity(const Session::Impl& s, StateWriter* to) {
  const SessionIdentity identity = SessionIdentityOf(s);
  to->Number<uint64_t>(identity.size());
  for (const auto& [name, value] : identity) {
    to->Text(name);
    to->Text(value);
  }
  SaveTiers(TiersOf(s.core->options, s.sequence->options()), to);
}

struct Description {
  SessionIdentity identity;
  std::optional<TierSetting> tiers;
};

Result<Description> LoadDescription(SessionFileReader* file) {
  EBB_ASSIGN_OR_RETURN(const auto bytes, file->ReadSection(SessionSection::kMadeWith));
  StateReader from(bytes, SessionSectionName(SessionSection::kMadeWith));
  Description description;
  const size_t count = from.Length(2 * sizeof(uint64_t));
  for (size_t i = 0; i < count && from.ok(); ++i) {
    std::string name = from.Text();
    std::string value = from.Text();
    description.identity.emplace_back(std::move(name), std::move(value));
  }
  description.tiers = LoadTiers(&from);
  EBB_RETURN_IF_ERROR(from.End());
  return description;
}

// Returns a text with the options that give the file's policy, for an error about property number
// `differs`. Returns an empty text if that property precedes the policy and so does not depend on
// it.
std::string PolicyOf(const SessionIdentity& found, size_t differs) {
  const auto first = std::ranges::find(found, "policy", &SessionIdentity::value_type::first);
  if (differs < static_cast<size_t>(first - found.begin())) return "";
  std::string text = "; the file was made with";
  for (auto it = first; it != found.end(); ++it) {
    text += fmt::format("{} {} {}", it == first ? "" : ",", it->first, it->second);
  }
  return text;
}

Status CheckSessionIdentity(const SessionIdentity& found, const SessionIdentity& expected) {
  for (const auto& [name, value] : expected) {
    const auto it = std::ranges::find(found, name, &SessionIdentity::value_type::first);
    if (it == found.end()) {
      return Unsupported(
          fmt::format("a session of another build of ebb, which did not save its {}", name));
    }
    if (it->second == value) continue;
    return InvalidArgument(fmt::format("a session of another {}: expected \"{}\", found \"{}\"{}",
                                       name, value, it->second,
                                       PolicyOf(found, static_cast<size_t>(it - found.begin()))));
  }
  for (const auto& [name, value] : found) {
    if (std::ranges::count(expected, name, &SessionIdentity::value_type::first) == 1) continue;
    return Unsupported(
        fmt::format("a session of another build of ebb: it was saved with {} \"{}\"", name, value));
  }
  return found.size() == expected.size() ? OkStatus()
                                         : Corrupt("the description names a thing twice");
}

void SaveSequence(const Session::Impl& s, StateWriter* to) {
  const SequenceFile sequence(s.sequence.get());
  to->Number<uint64_t>(s.logits.hash);
  sequence.SaveTokens(to);
  to->Numbers<float>(s.logits.values);
  sequence.SavePlaces(to);
}

Status LoadSequence(StateReader* from, Session::Impl* s) {
  SequenceFile sequence(s->sequence.get());
  s->logits.hash = from->Number<uint64_t>();
  EBB_RETURN_IF_ERROR(sequence.LoadTokens(from));
  s->logits.values = from->Numbers<float>();
  const size_t vocab_size = s->core->model->shape().vocab_size;
  s->logits.values.reserve(vocab_size);  // as OpenSession() does
  if (!s->logits.values.empty() && s->logits.values.size() != vocab_size) {
    from->Fail("logits of another vocabulary");
  }
  EBB_RETURN_IF_ERROR(from->status());
  return sequence.LoadPlaces(from);
}

// kTableSections lists the sections of row tables in the order of Session::Impl::caches().
constexpr std::array kTableSections = {SessionSection::kTables, SessionSection::kStoreTables};

Status LoadSection(SessionFileReader* file, SessionSection section,
                   const std::function<Status(StateReader*)>& load) {
  EBB_ASSIGN_OR_RETURN(const auto bytes, file->ReadSection(section));
  StateReader from(bytes, SessionSectionName(section));
  EBB_RETURN_IF_ERROR(load(&from));
  return from.End();
}

Status LoadTables(SessionFileReader* file, Session::Impl* s) {
  const std::vector<SequenceCache*> caches = s->caches();
  StatePages pages;
  for (size_t i = 0; i < caches.size(); ++i) {
    const auto check = [&](const StatePages& more) {
      pages.num_pages += more.num_pages;
      pages.num_bytes += more.num_bytes;
      return file->CheckPages(pages.num_pages, pages.num_bytes, i + 1 == caches.size());
    };
    EBB_RETURN_IF_ERROR(LoadSection(file, kTableSections[i], [&](StateReader* from) {
      return SequenceState::LoadTables(s->sequence->next(), check, from, caches[i]);
    }));
    if (i == 0) EBB_RETURN_IF_ERROR(SequenceFile(s->sequence.get()).CheckPlaces());
  }
  return s->speculator == nullptr ? OkStatus() : s->speculator->Resume();
}

Status Load(SessionFileReader* file, Session::Impl* s) {
  EBB_ASSIGN_OR_RETURN(const Description description, LoadDescription(file));
  EBB_RETURN_IF_ERROR(CheckSessionIdentity(description.identity, SessionIdentityOf(*s)));
  EBB_RETURN_IF_ERROR(LoadSection(file, SessionSection::kSequence,
                                  [&](StateReader* from) { return LoadSequence(from, s); }));
  EBB_RETURN_IF_ERROR(LoadTables(file, s));
  EBB_RETURN_IF_ERROR(LoadSection(file, SessionSection::kPolicy, [&](StateReader* from) {
    return SequenceFile(s->sequence.get()).LoadPolicy(from);
  }));
  const auto read = [&](const StatePage& page, auto rows) {
    return file->ReadPage(page.ToString(), rows);
  };
  for (SequenceCache* const cache : s->caches()) {
    EBB_RETURN_IF_ERROR(SequenceState::LoadPages(cache, read));
  }
  return OkStatus();
}

Status WithPath(const std::string& path, const Status& status) { return status.WithPrefix(path); }

Status Save(Session::Impl& s, const std::string& path, std::string_view extra,
            Durability durability) {
  EBB_RETURN_IF_ERROR(s.DiscardLookahead());
  StateWriter identity, sequence, policy;
  SaveSessionIdentity(s, &identity);
  SaveSequence(s, &sequence);
  const std::vector<SequenceCache*> caches = s.caches();
  std::array<StateWriter, kTableSections.size()> tables;
  StatePages pages;
  for (size_t i = 0; i < caches.size(); ++i) {
    EBB_ASSIGN_OR_RETURN(const StatePages more, SequenceState::SaveTables(*caches[i], &tables[i]));
    pages.num_pages += more.num_pages;
    pages.num_bytes += more.num_bytes;
  }
  EBB_RETURN_IF_ERROR(SequenceFile(s.sequence.get()).SavePolicy(&policy));
  const SessionSections sections = {identity.bytes(),  sequence.bytes(),
                                    tables[0].bytes(), tables[1].bytes(),
                                    policy.bytes(),    std::as_bytes(std::span(extra))};
  EBB_ASSIGN_OR_RETURN(SessionFileWriter file,
                       SessionFileWriter::Create(path, sections, pages.num_pages, pages.num_bytes));
  const auto write = [&](const StatePage&, auto rows) { return file.WritePage(rows); };
  for (SequenceCache* const cache : caches) {
    EBB_RETURN_IF_ERROR(SequenceState::SavePages(cache, write));
  }
  return file.Commit(durability);
}

Result<ResumedSession> Resume(Engine& engine, const std::string& path,
                              const SessionOptions& options) {
  auto file = SessionFileReader::Open(path);
  if (!file.ok()) return WithPath(path, file.status());
  ResumedSession resumed;
  EBB_ASSIGN_OR_RETURN(resumed.session, engine.OpenSession(options));
  if (const Status status = Load(&*file, &Internals::Of(*resumed.session)); !status.ok()) {
    return WithPath(path, status);
  }
  const auto extra = file->ReadSection(SessionSection::kExtra);
  if (!extra.ok()) return WithPath(path, extra.status());
  resumed.extra.resize(extra->size());
  std::ranges::copy(std::as_bytes(std::span(*extra)),
                    std::as_writable_bytes(std::span(resumed.extra)).begin());
  return resumed;
}

}  // namespace

Status SaveSession(Session& session, const std::string& path, std::string_view extra,
                   Durability durability) {
  try {
    return Save(Internals::Of(session), path, extra, durability);
  } catch (const std::bad_alloc&) {
    return OutOfMemory(fmt::format("no memory to save the session to {}", path));
  }
}

Status CheckSessionPlace(const std::string& path) { return FileReplacement::Create(path).status(); }

Result<std::shared_ptr<const void>> LockSessionFile(const std::string& path) {
  EBB_ASSIGN_OR_RETURN(std::unique_ptr<FileLock> lock, FileLock::Take(path));
  return std::shared_ptr<const void>(std::move(lock));
}

Result<ResumedSession> ResumeSession(Engine& engine, const std::string& path,
                                     const SessionOptions& options) {
  try {
    return Resume(engine, path, options);
  } catch (const std::bad_alloc&) {
    return OutOfMemory(fmt::format("no memory to resume the session of {}", path));
  }
}

std::string DescribeRows(const Engine& engine) {
  const Model& model = engine.model();
  const EngineOptions& options = engine.options();
  const EngineTiers tiers = options.tiers.value_or(EngineTiers());
  return fmt::format(
      "ebb {}, session file {}; model {}, {} bytes, fingerprint {:016x}; rope scaling {}; rows {}; "
      "T1 in {}, T2 {}; chunks of {} tokens; device {}, T1 {}, {}; attention {}; {}",
      EBB_VERSION, kSessionFileVersion, model.description(), model.weight_bytes(),
      model.fingerprint(), RopeText(model.loaded().hparams), RowTypeName(options.kv_type),
      T1PlaceName(tiers.t1.value_or(T1Place::kNone)),
      tiers.t2_type.has_value() ? CompressedTypeName(*tiers.t2_type) : "none",
      options.prefill_chunk, engine.device_report().name, T1ModeName(options.t1_mode),
      options.allow_inexact ? "inexact" : "exact", engine.attention_name(), InstructionsInUse());
}

Result<SessionFileInfo> ReadSessionInfo(const std::string& path) try {
  auto file = SessionFileReader::Open(path);
  if (!file.ok()) return WithPath(path, file.status());
  Result<Description> description = LoadDescription(&*file);
  if (!description.ok()) return WithPath(path, description.status());
  return SessionFileInfo{.tiers = description->tiers};
} catch (const std::bad_alloc&) {
  return OutOfMemory("no memory for a session file");
}

}  // namespace ebb
