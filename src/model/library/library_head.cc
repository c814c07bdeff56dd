// Opens heads: the MTP layer of a model's own file, and EAGLE-3 and DFlash heads and Gemma 4's
// assistants in files of their own.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <utility>

#include "src/model/library/library_checks.h"
#include "src/model/library/library_file.h"
#include "src/model/library/library_impl.h"
#include "src/model/library/library_model.h"
#include "src/model/loaded/decoder_graph.h"
#include "src/model/loaded/loaded_model.h"

namespace ebb {

ggml_tensor* LibraryModel::Impl::HiddenInputOf(const llm_graph_result& built) {
  ggml_tensor* read = nullptr;
  for (const auto& input : built.inputs) {
    if (const auto* both = dynamic_cast<const llm_graph_input_embd_h*>(input.get())) read = both->h;
    if (const auto* both = dynamic_cast<const llm_graph_input_embd*>(input.get())) {
      read = both->embd;
    }
  }
  return read;
}

Status LibraryModel::Impl::CheckHead(const llm_graph_result& built) const {
  const ggml_tensor* const read = HiddenInputOf(built);
  for (const ggml_tensor* row : {read, static_cast<const ggml_tensor*>(built.t_h_nextn)}) {
    if (row == nullptr || row->ne[0] != HiddenFloats()) {
      return Unsupported("the head reads or gives hidden rows of another width");
    }
  }
  return OkStatus();
}

Status LibraryModel::CheckGivesRows(std::span<const int> blocks) const {
  constexpr int kTokens = 3;
  const bool has_head_rows = std::ranges::find(blocks, kHeadRows) != blocks.end();
  const MutexLock lock(impl_->mutex);
  const Impl::Built built = impl_->Build(1, kTokens, 1, {.has_head_rows = has_head_rows});
  for (const int block : blocks) {
    const auto found = built.block_outputs.find(block);
    const ggml_tensor* const rows = block == kHeadRows                   ? built.result->t_h_nextn
                                    : found == built.block_outputs.end() ? nullptr
                                                                         : found->second;
    if (rows == nullptr || rows->ne[0] != impl_->hparams.embed_dim || ggml_nrows(rows) != kTokens) {
      return Unsupported(
          block == kHeadRows
              ? "its graph gives no hidden rows behind the last layer"
              : fmt::format("its graph does not name the input of layer {}", block + 1));
    }
  }
  return OkStatus();
}

Status LibraryModel::OpenMtp() {
  auto impl = std::make_unique<Impl>();
  impl->hparams.draft_source = Speculation::kMtp;
  impl->model = impl_->model;
  impl->cparams = impl_->cparams;
  impl->cparams.ctx_type = LLAMA_CONTEXT_TYPE_MTP;
  EBB_RETURN_IF_ERROR(impl->BuildDry());
  if (impl->hparams.vocab_size != impl_->hparams.vocab_size) {
    return Unsupported("its MTP layer has logits of another vocabulary");
  }
  constexpr int kRows[] = {kHeadRows};
  EBB_RETURN_IF_ERROR(CheckGivesRows(kRows));
  impl_->mtp.reset(new LibraryModel(std::move(impl)));
  return OkStatus();
}

std::unique_ptr<LibraryModel> LibraryModel::TakeMtp() { return std::move(impl_->mtp); }
const std::string& LibraryModel::mtp_obstacle() const { return impl_->mtp_obstacle; }

namespace {

// Checks that a head's graph can read these tables, its own or its target's.
Status CheckTables(const llama_model& head, const ggml_tensor* embeddings,
                   const ggml_tensor* output) {
  const auto width = static_cast<int64_t>(head.hparams.n_embd);
  const auto num_tokens = static_cast<int64_t>(head.vocab.n_tokens());
  const int64_t num_drafted = head.d2t != nullptr ? head.d2t->ne[0] : num_tokens;
  for (const auto& [name, table, rows] : {std::tuple("embeddings", embeddings, num_tokens),
                                          std::tuple("output matrix", output, num_drafted)}) {
    if (table == nullptr) {
      return InvalidArgument(fmt::format("neither the head nor the model has {}", name));
    }
    if (table->ne[0] == width && table->ne[1] == rows) continue;
    return InvalidArgument(fmt::format("the head needs {} of {} x {}, and has {} x {}", name, width,
                                       rows, table->ne[0], table->ne[1]));
  }
  return OkStatus();
}

}  // namespace

int LibraryModel::Impl::HiddenFloats() const {
  const llama_hparams& h = model->hparams;
  if (hparams.draft_source == Speculation::kDflash) return 0;
  return static_cast<int>(hparams.draft_source == Speculation::kAssistant ? h.n_embd_inp()
                                                                          : h.n_embd);
}

Status LibraryModel::Impl::BindTo(const Model* to) {
  if (to == nullptr) {
    return InvalidArgument(
        "the file holds a head, which guesses for another model; give it as "
        "that model's draft model (--draft-model)");
  }
  if (to->loaded().for_device) return Unsupported("an accelerator runs no heads");
  target = to->loaded().library.get();
  if (model->vocab.n_tokens() != static_cast<uint32_t>(to->shape().vocab_size)) {
    return InvalidArgument(fmt::format("the head has a vocabulary of {} tokens, and {} one of {}",
                                       model->vocab.n_tokens(), to->description(),
                                       to->shape().vocab_size));
  }
  switch (hparams.draft_source) {
    case Speculation::kEagle3:
      EBB_RETURN_IF_ERROR(BindEagle3(*to));
      break;
    case Speculation::kDflash:
      EBB_RETURN_IF_ERROR(BindDflash(*to));
      break;
    default:
      EBB_RETURN_IF_ERROR(BindAssistant(*to));
  }
  const std::vector<int> rows = RowsReadBy(hparams);
  const std::string why = to->batch_dependence();
  if (std::ranges::find(rows, kHeadRows) != rows.end() && !why.empty()) {
    return Unsupported("the head reads rows behind the last layer, and " + why);
  }
  const Status gives = target->CheckGivesRows(rows);
  return gives.ok() ? gives : gives.WithPrefix(to->description());
}

Status LibraryModel::Impl::BindFeatures(const Model& to, uint32_t floats_of_layer) {
  const llama_hparams& of_target = target->impl_->model->hparams;
  const auto num_layers = static_cast<int>(of_target.n_layer());
  // libllama computes the width of all layers' rows in 32 bits.
  const size_t num_read = model->target_layer_ids.size();
  if (num_read > of_target.n_layer() + 1 ||
      uint64_t{num_read} * floats_of_layer != model->hparams.n_embd_inp_enc()) {
    return InvalidArgument(fmt::format(
        "the head reads {} layers of {} numbers, {} together, and {} has {} layers", num_read,
        floats_of_layer, model->hparams.n_embd_inp_enc(), to.description(), num_layers));
  }
  if (floats_of_layer != of_target.n_embd) {
    return InvalidArgument(
        fmt::format("the head reads hidden rows of {} numbers, and {} has rows of {}",
                    floats_of_layer, to.description(), of_target.n_embd));
  }
  for (const int layer : model->target_layer_ids) {
    if (layer < 0 || layer > num_layers) {
      return InvalidArgument(fmt::format("the head reads layers {}, and {} has {} layers",
                                         fmt::join(model->target_layer_ids, ", "), to.description(),
                                         num_layers));
    }
    // The features of a layer are its input, the output of the block before.
    hparams.target_blocks.push_back(layer == num_layers ? kHeadRows : layer - 1);
  }
  return OkStatus();
}

Status LibraryModel::Impl::BindTables() {
  const llama_model& of_target = *target->impl_->model;
  if (model->tok_embd == nullptr) model->tok_embd = of_target.tok_embd;
  if (model->output == nullptr) model->output = of_target.output;
  return CheckTables(*model, model->tok_embd, model->output);
}

Status LibraryModel::Impl::BindEagle3(const Model& to) {
  if (model->hparams.n_layer() != 1) {
    return Unsupported(
        fmt::format("an EAGLE-3 head of {} layers; ebb takes one", model->hparams.n_layer()));
  }
  const size_t num_features = model->target_layer_ids.size();
  EBB_RETURN_IF_ERROR(
      BindFeatures(to, static_cast<uint32_t>(model->hparams.n_embd_inp_enc() / num_features)));
  return BindTables();
}

Status LibraryModel::Impl::BindDflash(const Model& to) {
  const llama_hparams& h = model->hparams;
  const auto causal = model->gguf_kv.find("dflash.attention.causal");
  const bool is_causal = causal != model->gguf_kv.end() && causal->second == "true";
  const bool is_plain = model->dspark_markov_w1 == nullptr &&
                        model->dflash_selector_hidden == nullptr && h.dsv4_hc_mult == 0 &&
                        h.rope_sections[0] == 0 && !is_causal;
  if (!is_plain) {
    return Unsupported(
        "the file holds a DSpark, DFlash 2 or causal DFlash head, or one for a model whose RoPE "
        "has "
        "sections; of DFlash, ebb takes the first version");
  }
  const llama_token mask = llama_vocab_mask(&model->vocab);
  if (mask < 0) return Corrupt("a DFlash head without tokenizer.ggml.mask_token_id");
  constexpr uint32_t kUsualBlock = 16;
  const uint32_t block = h.dflash_block_size == 0 ? kUsualBlock : h.dflash_block_size;
  if (block < 2 || model->target_layer_ids.empty()) {
    return Corrupt(fmt::format("a DFlash head with blocks of {} tokens that reads {} layers", block,
                               model->target_layer_ids.size()));
  }
  hparams.block_tokens = static_cast<int>(std::min<uint32_t>(block, kMostTokensWithGuesses));
  hparams.mask_token = mask;
  EBB_RETURN_IF_ERROR(BindFeatures(to, h.n_embd));
  return BindTables();
}

Status LibraryModel::Impl::CheckInjects() const {
  constexpr int kTokens = 3;
  const Built built = Build(1, kTokens, kTokens, {.injects = true});
  EBB_ASSIGN_OR_RETURN(const CacheNodes nodes, FindCacheNodes(built.result.get()));
  const bool stores_all = nodes.attentions.empty() &&
                          nodes.stores.size() == model->hparams.n_layer() &&
                          std::ranges::all_of(nodes.stores, [](const CacheAttention& rows) {
                            return rows.k != nullptr && rows.v != nullptr &&
                                   rows.k->type == GGML_TYPE_F32 && rows.v->type == GGML_TYPE_F32;
                          });
  return stores_all ? OkStatus() : Unsupported("its graph does not store the rows of all layers");
}

Status LibraryModel::Impl::BindAssistant(const Model& to) {
  const llama_model& of_target = *target->impl_->model;
  if (of_target.arch != LLM_ARCH_GEMMA4) {
    return InvalidArgument(
        fmt::format("an assistant guesses for Gemma 4 models (gemma4), and {} "
                    "is none",
                    to.description()));
  }
#ifndef EBB_LLAMA_IS_PATCHED
  return Unsupported("this build of ebb has an unpatched libllama, which runs no assistants");
#endif
  if (HiddenFloats() != static_cast<int>(of_target.hparams.n_embd)) {
    return InvalidArgument(
        fmt::format("the head reads hidden rows of {} numbers, and {} has rows of {}",
                    HiddenFloats(), to.description(), of_target.hparams.n_embd));
  }
  if (of_target.hparams.n_layer() < 2) {
    return InvalidArgument(
        fmt::format("an assistant reads rows of two layers, and {} has one", to.description()));
  }
  hparams.has_cache = false;
  // The assistant reads its target's embeddings; its own are its output matrix.
  model->tok_embd = of_target.tok_embd;
  return OkStatus();
}

llama_memory_i* LibraryModel::Impl::MakeAssistantMemory(const llama_cparams& of_memory) const {
  return new llama_kv_cache_iswa(*model, GGML_TYPE_F16, GGML_TYPE_F16, /*v_trans=*/false,
                                 of_memory.offload_kqv, /*swa_full=*/true, of_memory.kv_unified,
                                 kLibraryCacheRows, /*n_seq_max=*/1, of_memory.n_ubatch,
                                 /*n_pad=*/1, /*mem_other=*/nullptr, nullptr, nullptr, nullptr);
}

// An attention in a window reads the rows of the target's last layer but one, any other those of
// its last layer.
Status LibraryModel::Impl::ReadAssistantShape(const CacheNodes& nodes,
                                              const llm_graph_result& built) {
  if (nodes.attentions.empty()) return Unsupported("it has no attention over a KV cache");
  const CacheAttention& first = nodes.attentions.front();
  const Hyperparameters& rows = target->hparams();
  const llama_hparams& of_target = target->impl_->model->hparams;
  Hyperparameters& h = hparams;
  h.num_layers = rows.num_layers;
  h.kv_heads = rows.kv_heads;
  h.windows = rows.windows;
  h.head_dim = rows.head_dim;
  h.has_values = rows.has_values;
  for (const CacheAttention& call : nodes.attentions) {
    EBB_RETURN_IF_ERROR(CheckAttention(call, first));
    const uint32_t block = of_target.n_layer() - (call.in_window ? 2 : 1);
    const int layer = rows.layers_read[block];
    const int window = call.in_window ? static_cast<int>(model->hparams.n_swa) : 0;
    const bool fits = call.k == nullptr && call.num_kv_heads == rows.kv_heads[layer] &&
                      call.key_dim == static_cast<int>(of_target.n_embd_head_k(block)) &&
                      call.value_dim == static_cast<int>(of_target.n_embd_head_v(block)) &&
                      window == (rows.windows.empty() ? 0 : rows.windows[layer]);
    if (!fits) {
      return InvalidArgument(fmt::format(
          "the assistant reads {} heads of {} elements in a window of {} tokens (0: none), and "
          "layer {} of the model has others",
          call.num_kv_heads, call.key_dim, window, block));
    }
    h.layers_read.push_back(layer);
  }
  sinks.assign(h.num_layers, nullptr);
  h.embed_dim = HiddenFloats();
  h.num_q_heads = first.num_q_heads;
  h.attention_scale = first.scale;
  h.attention_soft_cap = first.soft_cap;
  h.trained_context = static_cast<int>(cparams.n_ctx_seq);
  h.vocab_size = static_cast<int>(built.t_logits->ne[0]);
  h.feed_forward_dim = static_cast<int>(model->hparams.n_ff());
  h.can_rotate_keys = h.has_keys_before_rope = false;
  return OkStatus();
}

Status LibraryModel::Impl::CheckTokenTable() const {
  if (model->d2t == nullptr) return OkStatus();
  if (model->d2t->type != GGML_TYPE_I64) return Corrupt("tensor d2t is not of 64-bit integers");
  const std::span table(static_cast<const int64_t*>(model->d2t->data), model->d2t->ne[0]);
  const auto wrong = std::ranges::find_if(table, [&](int64_t token) {
    return token < 0 || token >= static_cast<int64_t>(model->vocab.n_tokens());
  });
  if (wrong == table.end()) return OkStatus();
  return Corrupt(fmt::format("tensor d2t has token {} of a vocabulary of {}", *wrong,
                             model->vocab.n_tokens()));
}

}  // namespace ebb
