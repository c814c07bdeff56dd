// Engines and sessions.
#include <cmath>
#include <utility>

#include "ebb/cached_rows.h"
#include "ebb/session_file.h"
#include "sessions.h"

namespace ebb::python {

void Prefill(const HolderPtr& holder, std::span<const Token> tokens, nb::handle progress,
             PrefillOptions options) {
  std::atomic<bool> cancel = false;
  std::optional<nb::python_error> raised;
  options.cancel = &cancel;
  options.progress = [&](size_t num_read) {
    nb::gil_scoped_acquire gil;
    try {
      CheckSignals();
      if (progress.is_valid() && !progress.is_none()) progress(num_read);
    } catch (nb::python_error& error) {
      if (!raised.has_value()) raised.emplace(std::move(error));
      cancel = true;
    }
    if (holder->failure->is_set()) cancel = true;
  };
  const StepOutcome outcome =
      InTurn(holder, [&](Session& session) { return session.Prefill(tokens, options); });
  holder->failure->RaiseIfSet();
  if (raised.has_value()) throw std::move(*raised);
  RaiseIfError(outcome.status);
}

std::vector<Token> TokensOf(const Model& model, nb::handle prompt) {
  if (!nb::isinstance<nb::str>(prompt)) return nb::cast<std::vector<Token>>(prompt);
  const auto text = nb::cast<std::string>(prompt);
  return ValueOrRaise(WithoutGil(
      [&] { return model.Tokenize(text, Model::AddBos::kAsModelSays, Model::Specials::kParse); }));
}

namespace {

HolderPtr NewHolder(const PythonEngine& engine) {
  auto holder = std::make_shared<SessionHolder>();
  holder->model = engine.model;
  holder->turn = engine.turn;
  return holder;
}

// Raises InvalidArgument unless the engine has the tiers that a session asks for.
void CheckTiersOfEngine(const EngineTiers& asked, const EngineTiers& made) {
  const auto check = [](bool is_other, const char* field, const std::string& what) {
    if (is_other) Raise(InvalidArgument(field, "the engine was made with another " + what));
  };
  check(asked.t1.has_value() && asked.t1 != made.t1, "t1", "location of T1");
  check(asked.t2_type.has_value() && asked.t2_type != made.t2_type, "t2", "format of T2");
  for (const auto& [cap, made_cap, tier] :
       {std::tuple(asked.t0_cap_bytes, made.t0_cap_bytes, "t0"),
        std::tuple(asked.t1_cap_bytes, made.t1_cap_bytes, "t1")}) {
    check(cap > 0 && cap != made_cap, tier, std::string("cap on ") + tier);
  }
}

// The options of a session whose policy Python code may take part in.
SessionOptions OptionsOf(const PythonEngine& engine, const nb::dict& dict,
                         const HolderPtr& holder) {
  SessionOptions options = ReadSession(dict);
  const bool has_policy = dict.contains("policy") && !nb::object(dict["policy"]).is_none();
  if (options.lossless.has_value() && !has_policy) {
    options.policy = DefaultDraft(std::move(options.policy));
  }
  const auto& tiers = engine.engine->options().tiers;
  if (const auto asked = ReadTiers(dict).engine; asked.has_value() && tiers.has_value()) {
    CheckTiersOfEngine(*asked, *tiers);
  }
  const PythonParts parts = ReadParts(dict);
  if (parts.empty()) return options;
  holder->making = std::make_shared<std::weak_ptr<SessionHolder>>(holder);
  options.make_policy =
      MakePythonPolicy(options.policy, parts, tiers.has_value(), holder->making, holder->failure);
  return options;
}

PySession OpenSession(PythonEngine& engine, const nb::dict& dict) {
  const HolderPtr holder = NewHolder(engine);
  const SessionOptions options = OptionsOf(engine, dict, holder);
  {
    EngineTurn::Hold turn(engine.turn);
    auto session = WithoutGil([&] { return engine.engine->OpenSession(options); });
    holder->failure->RaiseIfSet();
    holder->session = ValueOrRaise(std::move(session));
  }
  return {holder};
}

nb::tuple Resume(PythonEngine& engine, const std::string& path, const nb::dict& dict) {
  const HolderPtr holder = NewHolder(engine);
  const SessionOptions options = OptionsOf(engine, dict, holder);
  std::string extra;
  {
    EngineTurn::Hold turn(engine.turn);
    auto resumed = WithoutGil([&] { return ResumeSession(*engine.engine, path, options); });
    holder->failure->RaiseIfSet();
    ResumedSession value = ValueOrRaise(std::move(resumed));
    holder->session = std::move(value.session);
    extra = std::move(value.extra);
  }
  return nb::make_tuple(PySession{holder}, nb::bytes(extra.data(), extra.size()));
}

// Returns log softmax(logits)[token].
float LogProbability(std::span<const float> logits, Token token) {
  if (token < 0 || static_cast<size_t>(token) >= logits.size()) return NAN;
  return static_cast<float>(logits[token] - LogSumExp(logits));
}

// Reads given text, and returns the logarithmic probability of each of its tokens after those
// before it; NaN for the first token of a session.
nb::object LogProbabilities(PySession& session, nb::handle prompt, nb::handle progress) {
  const HolderPtr& holder = Sound(session).holder;
  const std::vector<Token> tokens = TokensOf(*holder->model, prompt);
  std::vector<float> found(tokens.size(), NAN);
  Position first = 0;
  {
    EngineTurn::Hold turn(holder->turn);
    first = holder->session->next_position();
    if (!tokens.empty()) found[0] = LogProbability(holder->session->logits(), tokens[0]);
  }
  PrefillOptions options;
  options.on_logits = [&](Position position, std::span<const float> logits) {
    const auto next = static_cast<size_t>(position - first) + 1;
    if (next < tokens.size()) found[next] = LogProbability(logits, tokens[next]);
  };
  Prefill(holder, tokens, progress, std::move(options));
  return CopyOf(std::span<const float>(found));
}

// Calls `read` while the engine is this thread's.
template <typename Read>
auto Reading(PySession& session, Read read) {
  EngineTurn::Hold turn(session.holder->turn);
  return read(*session.holder->session);
}

nb::dict Accounting(PySession& self) {
  return Reading(self, [](const Session& session) {
    const CacheAccounting cache = session.accounting();
    nb::dict dict;
    nb::list rows, bytes;
    for (const TierAccounting& tier : cache.tiers) {
      rows.append(tier.rows);
      bytes.append(tier.page_bytes);
    }
    dict["rows"] = rows;
    dict["page_bytes"] = bytes;
    dict["rows_evicted"] = cache.rows_evicted;
    dict["table_bytes"] = cache.table_bytes;
    dict["staging_bytes"] = cache.staging_bytes;
    dict["ledger_bytes"] = cache.ledger_bytes;
    dict["rows_moved_down"] = cache.moves.rows_down;
    dict["rows_moved_up"] = cache.moves.rows_up;
    dict["move_seconds"] = cache.moves.seconds;
    return dict;
  });
}

nb::dict LastStep(PySession& self) {
  return Reading(self, [](const Session& session) {
    const StepReport& step = session.last_step();
    nb::dict dict;
    dict["is_decode"] = step.kind == StepKind::kDecode;
    dict["num_tokens"] = step.num_tokens;
    dict["rows_evicted"] = step.rows_evicted;
    dict["compute_seconds"] = step.compute_seconds;
    dict["policy_seconds"] = step.policy_seconds;
    dict["io_wait_seconds"] = step.io_wait_seconds;
    dict["t1_bytes_read"] = step.t1_bytes_read;
    return dict;
  });
}

nb::dict SpeculationOf(PySession& session) {
  return Reading(session, [](Session& session) {
    const SpeculationReport report = session.speculation_report();
    nb::dict dict;
    dict["drafted"] = report.drafted;
    dict["accepted"] = report.accepted;
    dict["verify_steps"] = report.verify_steps;
    for (const Speculation source : kDraftSources) {
      const bool is_own = source == report.draft_source;
      const std::string name(SpeculationName(source));
      dict[("drafted_by_" + name).c_str()] = is_own ? report.drafted_by_source : 0;
      dict[("accepted_by_" + name).c_str()] = is_own ? report.accepted_by_source : 0;
    }
    dict["obstacle"] = session.speculation_obstacle();
    return dict;
  });
}

nb::object Lossless(PySession& self) {
  return Reading(self, [](const Session& session) -> nb::object {
    const LosslessReport* report = session.lossless_report();
    if (report == nullptr) return nb::none();
    nb::dict dict;
    dict["drafted"] = report->drafted;
    dict["accepted"] = report->accepted;
    dict["looked_up"] = report->looked_up;
    dict["verify_steps"] = report->verify_steps;
    dict["bytes_read"] = report->bytes_read;
    return dict;
  });
}

// Returns a NumPy array with a copy of `values`, in rows of `columns`.
template <typename T>
nb::object Matrix(const std::vector<T>& values, size_t columns) {
  return CopyOf(std::span<const T>(values))
      .attr("reshape")(nb::make_tuple(values.size() / columns, columns));
}

// Returns (positions, tiers, keys, values) of the rows of one (layer, kv head); values None if they
// are parts of the keys.
nb::tuple RowsOf(PySession& self, int layer, int kv_head) {
  const HolderPtr& holder = Sound(self).holder;
  const CachedRows rows = ValueOrRaise(
      InTurn(holder, [&](Session& session) { return ReadCachedRows(session, layer, kv_head); }));
  const auto dim = static_cast<size_t>(holder->model->shape().head_dim);
  const auto matrix = [&](const std::vector<float>& values) -> nb::object {
    if (values.empty() && !rows.positions.empty()) return nb::none();
    return Matrix(values, dim);
  };
  const std::span<const uint8_t> tiers(reinterpret_cast<const uint8_t*>(rows.tiers.data()),
                                       rows.tiers.size());
  return nb::make_tuple(CopyOf(std::span<const Position>(rows.positions)), CopyOf(tiers),
                        matrix(rows.keys), matrix(rows.values));
}

nb::object RowsByStep(PySession& self) {
  return Reading(self, [](const Session& session) -> nb::object {
    if (session.ledger() == nullptr) return nb::none();
    std::vector<int64_t> counts;
    for (const Ledger::RowsPerTier& rows : session.ledger()->RowsByStep()) {
      counts.insert(counts.end(), rows.begin(), rows.end());
    }
    return Matrix(counts, kNumTiers);
  });
}

}  // namespace

void BindEngine(nb::module_& module) {
  module.def(
      "compresses_rows",
      [](std::string_view kv_type) { return CompressedKvType(kv_type).has_value(); },
      nb::arg("kv_type"), "Whether a kv_type is short for tiers that compress all old rows.");
  nb::class_<PythonEngine>(module, "Engine", "The core of ebb.Engine.")
      .def_static(
          "create",
          [](std::shared_ptr<Model> model, const nb::dict& dict, std::shared_ptr<Model> draft) {
            EngineOptions options = ReadEngine(dict);
            options.draft_model = std::move(draft);
            auto engine = std::make_unique<PythonEngine>();
            engine->model = model;
            engine->engine =
                ValueOrRaise(WithoutGil([&] { return Engine::Create(model, options); }));
            return engine;
          },
          nb::arg("model"), nb::arg("options"), nb::arg("draft").none() = nb::none())
      .def("open", &OpenSession, nb::arg("options"))
      .def("resume", &Resume, nb::arg("path"), nb::arg("options"))
      .def_prop_ro("threads", [](const PythonEngine& e) { return e.engine->options().threads; })
      .def_prop_ro("attention", [](const PythonEngine& e) { return e.engine->attention_name(); })
      .def(
          "count_needs",
          [](PythonEngine& engine, const nb::dict& dict, int prompt_tokens, int most_tokens) {
            const SessionOptions options = OptionsOf(engine, dict, NewHolder(engine));
            EngineTurn::Hold turn(engine.turn);
            const TierNeeds needs = ValueOrRaise(WithoutGil(
                [&] { return engine.engine->CountNeeds(options, prompt_tokens, most_tokens); }));
            nb::dict result;
            result["t0_floor_bytes"] = needs.t0_floor_bytes;
            result["t0_bytes"] = needs.t0_bytes;
            result["t1_bytes"] = needs.t1_bytes;
            result["t2_bytes"] = needs.t2_bytes;
            return result;
          },
          nb::arg("options"), nb::arg("prompt_tokens"), nb::arg("most_tokens"))
      .def("peak_bytes", [](PythonEngine& engine) {
        EngineTurn::Hold turn(engine.turn);
        std::vector<size_t> bytes;
        for (const Tier tier : {Tier::kT0, Tier::kT1, Tier::kT2}) {
          bytes.push_back(engine.engine->arena_accounting(tier).peak_bytes);
        }
        return bytes;
      });

  nb::class_<PySession> session(module, "Session", "The core of ebb.Session.");
  BindGenerations(module, &session);
  session
      .def(
          "prefill",
          [](PySession& self, nb::handle prompt, nb::handle progress) {
            const HolderPtr& holder = Sound(self).holder;
            const std::vector<Token> tokens = TokensOf(*holder->model, prompt);
            Prefill(holder, tokens, progress);
          },
          nb::arg("prompt"), nb::arg("progress").none())
      .def(
          "decode",
          [](PySession& self, Token token) {
            const HolderPtr& holder = Sound(self).holder;
            const StepOutcome outcome =
                InTurn(holder, [&](Session& session) { return session.Decode(token); });
            holder->failure->RaiseIfSet();
            CheckSignals();
            RaiseIfError(outcome.status);
          },
          nb::arg("token"))
      .def("log_probabilities", &LogProbabilities, nb::arg("prompt"), nb::arg("progress").none())
      .def("fork",
           [](PySession& self) {
             const HolderPtr& holder = Sound(self).holder;
             auto copy = std::make_shared<SessionHolder>();
             copy->model = holder->model;
             copy->turn = holder->turn;
             copy->making = holder->making;
             {
               EngineTurn::Hold turn(holder->turn);
               // The policy that the fork gets is the fork's.
               if (copy->making != nullptr) *copy->making = copy;
               auto forked = WithoutGil([&] { return holder->session->Fork(); });
               if (copy->making != nullptr && !forked.ok()) *copy->making = holder;
               holder->failure->RaiseIfSet();
               copy->failure->RaiseIfSet();
               copy->session = ValueOrRaise(std::move(forked));
             }
             return PySession{copy};
           })
      .def(
          "save",
          [](PySession& self, const std::string& path, nb::bytes extra) {
            const HolderPtr& holder = Sound(self).holder;
            const std::string bytes(extra.c_str(), extra.size());
            const Status status =
                InTurn(holder, [&](Session& session) { return SaveSession(session, path, bytes); });
            holder->failure->RaiseIfSet();
            RaiseIfError(status);
          },
          nb::arg("path"), nb::arg("extra"))
      .def(
          "truncate",
          [](PySession& self, Position end) {
            const Status status =
                Reading(Sound(self), [&](Session& s) { return s.TruncateTo(end); });
            self.holder->failure->RaiseIfSet();
            RaiseIfError(status);
          },
          nb::arg("end"))
      .def(
          "set_t0_share",
          [](PySession& self, double share) {
            const HolderPtr& holder = Sound(self).holder;
            const Status status =
                InTurn(holder, [&](Session& session) { return session.SetT0Share(share); });
            holder->failure->RaiseIfSet();
            RaiseIfError(status);
          },
          nb::arg("share"))
      .def("park",
           [](PySession& self) {
             RaiseIfError(
                 InTurn(Sound(self).holder, [](Session& session) { return session.Park(); }));
           })
      .def_prop_ro("tokens",
                   [](PySession& self) {
                     return Reading(self, [](const Session& s) { return CopyOf(s.tokens()); });
                   })
      .def_prop_ro("logits",
                   [](PySession& self) {
                     return Reading(self, [](const Session& s) { return CopyOf(s.logits()); });
                   })
      .def_prop_ro("logits_hash",
                   [](PySession& self) {
                     return Reading(self, [](const Session& s) { return s.logits_hash(); });
                   })
      .def_prop_ro("next_position",
                   [](PySession& self) {
                     return Reading(self, [](const Session& s) { return s.next_position(); });
                   })
      .def_prop_ro("context",
                   [](PySession& self) {
                     return Reading(self, [](const Session& s) { return s.context(); });
                   })
      .def_prop_ro("policy_name",
                   [](PySession& self) {
                     return Reading(self, [](const Session& s) { return s.policy().name; });
                   })
      .def_prop_ro("num_groups",
                   [](PySession& self) {
                     return Reading(self, [&](const Session& s) {
                       return self.holder->model->shape().NumGroups(s.policy().granularity);
                     });
                   })
      .def(
          "visible_positions",
          [](PySession& self, int group) {
            return Reading(self, [&](const Session& s) {
              const int num_groups = self.holder->model->shape().NumGroups(s.policy().granularity);
              if (group < 0 || group >= num_groups) throw nb::index_error("no such group");
              return CopyOf(s.visible_positions(group));
            });
          },
          nb::arg("group"))
      .def(
          "tiers_of",
          [](PySession& self, int group) {
            return Reading(self, [&](const Session& s) -> nb::object {
              const Ledger* ledger = s.ledger();
              if (ledger == nullptr) return nb::none();
              if (group < 0 || group >= ledger->num_groups())
                throw nb::index_error("no such group");
              const auto tiers = ledger->tiers(group);
              return CopyOf(
                  std::span(reinterpret_cast<const uint8_t*>(tiers.data()), tiers.size()));
            });
          },
          nb::arg("group"))
      .def("rows_of", &RowsOf, nb::arg("layer"), nb::arg("kv_head"))
      .def("rows_by_step", &RowsByStep)
      .def("accounting", &Accounting)
      .def("last_step", &LastStep)
      .def("lossless_report", &Lossless)
      .def("speculation_report", &SpeculationOf);

  module.def(
      "available_threads", [] { return AvailableProcessors().threads; },
      "How many compute threads there is room for.");
}

}  // namespace ebb::python
