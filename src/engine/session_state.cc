// What a session file holds. The frame is session_file.h's, the cache's part sequence_state.h's.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <new>
#include <utility>

#include "ebb/session_file.h"
#include "src/engine/engine_impl.h"
#include "src/engine/session_file.h"
#include "src/kv/sequence_state.h"
#include "src/model/loaded_model.h"

namespace ebb {
namespace {

using MadeWith = std::vector<std::pair<std::string, std::string>>;

std::string RopeText(const Hyperparameters& h) {
  return fmt::format("base {}, scale {}, of {} tokens, yarn {} {} {} {}", h.rope_base,
                     h.rope_frequency_scale, h.rope_original_context, h.yarn_ext_factor,
                     h.yarn_attn_factor, h.yarn_beta_fast, h.yarn_beta_slow);
}

std::string PlaceText(T1Place place) {
  switch (place) {
    case T1Place::kNone:
      return "none";
    case T1Place::kHost:
      return "host";
    case T1Place::kFile:
      return "file";
  }
  return "";
}

std::string T1Text(const std::optional<TierSpec>& tiers) {
  return tiers.has_value() ? PlaceText(tiers->t1) : "no tiers";
}

// Which rows are kept, and where those that a policy does not.
std::string KeptRowsText(const Session::Impl& s) {
  if (s.lossless == nullptr) return "those of the policy";
  const std::optional<TierSpec>& tiers = s.engine->options.tiers;
  return fmt::format("all, verify: {}, T1: {}", VerifyName(s.options.lossless->verify),
                     PlaceText(tiers.has_value() ? tiers->t1 : T1Place::kNone));
}

// What a session that resumes another one must have in common with it, in the order in which it is
// compared.
MadeWith MadeWithOf(const Session::Impl& s) {
  const Model& model = *s.engine->model;
  const Policy& policy = s.policy;
  return {
      {"model", fmt::format("{}, fingerprint {:016x}", model.description(), model.fingerprint())},
      {"rope scaling", RopeText(model.loaded().hparams)},
      {"number format of rows", std::string(RowTypeName(s.engine->options.kv_type))},
      {"policy", policy.name},
      {"scorer", policy.scorer->Name()},
      {"placement", policy.placement == nullptr ? "none" : policy.placement->Name()},
      {"selector", policy.selector == nullptr ? "none" : policy.selector->Name()},
      {"granularity", std::string(GranularityName(policy.granularity))},
      {"T1", T1Text(s.options.policy.tiers)},
      {"choice of kept rows", KeptRowsText(s)},
  };
}

void SaveTiers(const std::optional<TierSpec>& tiers, StateWriter* to) {
  to->Number<uint8_t>(tiers.has_value() ? 1 : 0);
  const TierSpec spec = tiers.value_or(TierSpec());
  to->Number<double>(spec.t0_share);
  to->Number<uint64_t>(spec.t0_cap_bytes);
  to->Number<uint8_t>(static_cast<uint8_t>(spec.t1));
  to->Number<uint64_t>(spec.t1_cap_bytes);
  to->Number<double>(spec.t2_share);
  to->Number<uint8_t>(static_cast<uint8_t>(spec.t2_type));
  to->Number<double>(spec.evict_share);
  to->Number<uint8_t>(static_cast<uint8_t>(spec.evict_of));
}

template <typename Enum>
Enum LoadEnum(Enum last, StateReader* from) {
  const auto value = from->Number<uint8_t>();
  if (value <= static_cast<uint8_t>(last)) return static_cast<Enum>(value);
  from->Fail(fmt::format("a choice of {}", value));
  return last;
}

double LoadShare(StateReader* from) {
  const auto share = from->Number<double>();
  if (share >= 0 && share <= 1) return share;
  from->Fail(fmt::format("a share of {}", share));
  return 0;
}

std::optional<TierSpec> LoadTiers(StateReader* from) {
  const bool has_tiers = from->Number<uint8_t>() != 0;
  TierSpec spec;
  spec.t0_share = LoadShare(from);
  spec.t0_cap_bytes = from->Number<uint64_t>();
  spec.t1 = LoadEnum(T1Place::kFile, from);
  spec.t1_cap_bytes = from->Number<uint64_t>();
  spec.t2_share = LoadShare(from);
  spec.t2_type = LoadEnum(CompressedType::kInt8Naive, from);
  spec.evict_share = LoadShare(from);
  spec.evict_of = LoadEnum(EvictOf::kAlive, from);
  return has_tiers ? std::optional(spec) : std::nullopt;
}

void SaveMadeWith(const Session::Impl& s, StateWriter* to) {
  const MadeWith made_with = MadeWithOf(s);
  to->Number<uint64_t>(made_with.size());
  for (const auto& [name, value] : made_with) {
    to->Text(name);
    to->Text(value);
  }
  SaveTiers(s.options.policy.tiers, to);
}

struct Description {
  MadeWith made_with;
  std::optional<TierSpec> tiers;
};

Result<Description> LoadDescription(SessionFileReader* file) {
  EBB_ASSIGN_OR_RETURN(const auto bytes, file->ReadSection(SessionSection::kMadeWith));
  StateReader from(bytes, SessionSectionName(SessionSection::kMadeWith));
  Description description;
  const size_t count = from.Length(2 * sizeof(uint64_t));
  for (size_t i = 0; i < count && from.ok(); ++i) {
    std::string name = from.Text();
    std::string value = from.Text();
    description.made_with.emplace_back(std::move(name), std::move(value));
  }
  description.tiers = LoadTiers(&from);
  EBB_RETURN_IF_ERROR(from.End());
  return description;
}

// All that a user must ask for to have the file's policy; empty for what stands before it.
std::string PolicyOf(const MadeWith& found, size_t differs) {
  const auto first = std::ranges::find(found, "policy", &MadeWith::value_type::first);
  if (differs < static_cast<size_t>(first - found.begin())) return "";
  std::string text = "; the file was made with";
  for (auto it = first; it != found.end(); ++it) {
    text += fmt::format("{} {} {}", it == first ? "" : ",", it->first, it->second);
  }
  return text;
}

Status CheckMadeWith(const MadeWith& found, const MadeWith& expected) {
  for (size_t i = 0; i < std::min(found.size(), expected.size()); ++i) {
    if (found[i].first != expected[i].first) break;
    if (found[i].second == expected[i].second) continue;
    return InvalidArgument(fmt::format("a session of another {}: expected \"{}\", found \"{}\"{}",
                                       found[i].first, expected[i].second, found[i].second,
                                       PolicyOf(found, i)));
  }
  const auto name = [](const auto& one) { return one.first; };
  if (std::ranges::equal(found, expected, {}, name, name)) return OkStatus();
  return Corrupt("the description names other things than this version writes");
}

Status Load(SessionFileReader* file, Session::Impl* s) {
  EBB_ASSIGN_OR_RETURN(const Description description, LoadDescription(file));
  EBB_RETURN_IF_ERROR(CheckMadeWith(description.made_with, MadeWithOf(*s)));
  const auto load = [&](SessionSection section, const auto& read) -> Status {
    EBB_ASSIGN_OR_RETURN(const auto bytes, file->ReadSection(section));
    StateReader from(bytes, SessionSectionName(section));
    EBB_RETURN_IF_ERROR(read(&from));
    return from.End();
  };
  EBB_RETURN_IF_ERROR(
      load(SessionSection::kSequence, [&](StateReader* from) { return s->LoadSequence(from); }));
  StatePages pages;
  const auto load_tables = [&](SessionSection section, bool last, SequenceCache* cache) {
    const auto check = [&](const StatePages& more) {
      pages.num_pages += more.num_pages;
      pages.num_bytes += more.num_bytes;
      return file->CheckPages(pages.num_pages, pages.num_bytes, last);
    };
    return load(section, [&](StateReader* from) {
      return SequenceState::LoadTables(s->next(), check, from, cache);
    });
  };
  const bool has_store = s->lossless != nullptr;
  EBB_RETURN_IF_ERROR(load_tables(SessionSection::kTables, !has_store, &s->cache));
  EBB_RETURN_IF_ERROR(s->CheckPlaces());
  if (has_store) {
    SequenceCache* const store = &s->lossless->store().cache;
    EBB_RETURN_IF_ERROR(load_tables(SessionSection::kStoreTables, true, store));
    EBB_RETURN_IF_ERROR(s->lossless->Resume());
  }
  EBB_RETURN_IF_ERROR(load(SessionSection::kPolicy, [&](StateReader* from) -> Status {
    s->signals.Load(from);
    s->driver.BeginLedger(s->next());
    return s->driver.LoadState(from);
  }));
  const auto read = [&](const StatePage& page, auto rows) {
    return file->ReadPage(page.ToString(), rows);
  };
  EBB_RETURN_IF_ERROR(SequenceState::LoadPages(&s->cache, read));
  return has_store ? SequenceState::LoadPages(&s->lossless->store().cache, read) : OkStatus();
}

Status WithPath(const std::string& path, const Status& status) {
  return Status(status.code(), fmt::format("{}: {}", path, status.message()));
}

Status Save(Session::Impl& s, const std::string& path, std::string_view extra) {
  EBB_RETURN_IF_ERROR(s.CheckUnbroken());
  if (s.lossless != nullptr) {
    s.lossless->DropAhead();
    EBB_RETURN_IF_ERROR(s.CheckUnbroken());
  }
  StateWriter made_with, sequence, tables, store_tables, policy;
  SaveMadeWith(s, &made_with);
  s.SaveSequence(&sequence);
  EBB_ASSIGN_OR_RETURN(StatePages pages, SequenceState::SaveTables(s.cache, &tables));
  SequenceCache* const store = s.lossless == nullptr ? nullptr : &s.lossless->store().cache;
  if (store != nullptr) {
    EBB_ASSIGN_OR_RETURN(const StatePages more, SequenceState::SaveTables(*store, &store_tables));
    pages.num_pages += more.num_pages;
    pages.num_bytes += more.num_bytes;
  }
  s.signals.Save(&policy);
  EBB_RETURN_IF_ERROR(s.driver.SaveState(&policy));
  const SessionSections sections = {made_with.bytes(), sequence.bytes(),
                                    tables.bytes(),    store_tables.bytes(),
                                    policy.bytes(),    std::as_bytes(std::span(extra))};
  EBB_ASSIGN_OR_RETURN(SessionFileWriter file,
                       SessionFileWriter::Create(path, sections, pages.num_pages, pages.num_bytes));
  const auto write = [&](const StatePage&, auto rows) { return file.WritePage(rows); };
  EBB_RETURN_IF_ERROR(SequenceState::SavePages(&s.cache, write));
  if (store != nullptr) EBB_RETURN_IF_ERROR(SequenceState::SavePages(store, write));
  return file.Commit();
}

Result<ResumedSession> Resume(Engine& engine, const std::string& path,
                              const SessionOptions& options) {
  auto file = SessionFileReader::Open(path);
  if (!file.ok()) return WithPath(path, file.status());
  ResumedSession resumed;
  EBB_ASSIGN_OR_RETURN(resumed.session, engine.OpenSession(options));
  if (const Status status = Load(&*file, &resumed.session->impl()); !status.ok()) {
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

void Session::Impl::SaveSequence(StateWriter* to) const {
  to->Number<uint64_t>(logits_hash);
  to->Number<uint8_t>(first_prefill_over ? 1 : 0);
  to->Number<uint8_t>(refused.has_value() ? 1 + static_cast<uint8_t>(*refused) : 0);
  to->Numbers<Token>(tokens);
  std::vector<uint8_t> kinds_as_bytes;
  for (const TokenKind kind : kinds) kinds_as_bytes.push_back(static_cast<uint8_t>(kind));
  to->Numbers<uint8_t>(kinds_as_bytes);
  to->Numbers<float>(logits);
  rope.Save(to);
  first_keys.Save(to);
}

Status Session::Impl::LoadSequence(StateReader* from) {
  logits_hash = from->Number<uint64_t>();
  first_prefill_over = from->Number<uint8_t>() != 0;
  const auto refused_kind = from->Number<uint8_t>();
  if (refused_kind > 2) from->Fail(fmt::format("a step of kind {}", refused_kind));
  if (refused_kind > 0) refused = static_cast<StepKind>(refused_kind - 1);
  tokens = from->Numbers<Token>();
  const auto kinds_as_bytes = from->Numbers<uint8_t>();
  logits = from->Numbers<float>();
  const size_t vocab_size = engine->model->shape().vocab_size;
  logits.reserve(vocab_size);  // as OpenSession() does
  if (!CheckTokens(tokens).ok()) from->Fail(CheckTokens(tokens).message());
  if (tokens.size() > std::numeric_limits<Position>::max() ||
      kinds_as_bytes.size() != tokens.size()) {
    from->Fail("as many kinds as tokens were expected");
  }
  if (!logits.empty() && logits.size() != vocab_size) from->Fail("logits of another vocabulary");
  for (const uint8_t kind : kinds_as_bytes) {
    if (kind > 1) from->Fail(fmt::format("a token of kind {}", kind));
    kinds.push_back(static_cast<TokenKind>(kind));
  }
  EBB_RETURN_IF_ERROR(from->status());
  const auto generated = std::ranges::find(kinds, TokenKind::kGenerated);
  first_generated =
      generated == kinds.end() ? -1 : static_cast<Position>(generated - kinds.begin());
  decode_steps = std::ranges::count(kinds, TokenKind::kGenerated);
  rope.Load(cache.num_groups(), next(), from);
  first_keys.Load(cache, next(), from);
  return from->status();
}

// Once the rows are known.
Status Session::Impl::CheckPlaces() const {
  const auto num_rows = static_cast<Position>(cache.max_rows());
  if (rope.Next(next()) < num_rows) return Corrupt("more rows than places");
  // Keys that may be rotated anew find room where rows do.
  const Position needed = TurnsKeys() ? num_rows : rope.Next(next());
  if (needed <= context) return OkStatus();
  return InvalidArgument(
      fmt::format("a session longer than the context: expected at most {} "
                  "tokens, found {}",
                  context, needed));
}

Status SaveSession(Session& session, const std::string& path, std::string_view extra) {
  try {
    return Save(session.impl(), path, extra);
  } catch (const std::bad_alloc&) {
    return ResourceExhausted(fmt::format("no memory to save the session to {}", path));
  }
}

Status CheckSessionPlace(const std::string& path) { return FileReplacement::Create(path).status(); }

Result<ResumedSession> ResumeSession(Engine& engine, const std::string& path,
                                     const SessionOptions& options) {
  try {
    return Resume(engine, path, options);
  } catch (const std::bad_alloc&) {
    return ResourceExhausted(fmt::format("no memory to resume the session of {}", path));
  }
}

Result<SessionFileInfo> ReadSessionInfo(const std::string& path) {
  auto file = SessionFileReader::Open(path);
  if (!file.ok()) return WithPath(path, file.status());
  Result<Description> description = LoadDescription(&*file);
  if (!description.ok()) return WithPath(path, description.status());
  return SessionFileInfo{.tiers = description->tiers};
}

}  // namespace ebb
