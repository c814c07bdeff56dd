#include "src/model/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "src/model/family.h"

namespace ebb {
namespace {

using Piece = WeightLoader::Piece;
using Use = WeightLoader::Use;

constexpr size_t kMaxDeclarationsPerLayer = 21;

// Declares the weights of one layer.
class LayerLayout {
 public:
  LayerLayout(const GgufFile& file, WeightLoader& loader, const LoadedModel& model, int layer)
      : file_(file),
        loader_(loader),
        family_(*model.family),
        h_(model.hparams),
        layer_(layer),
        query_rows_(int64_t{h_.head_dim} * h_.num_q_heads),
        kv_rows_(int64_t{h_.head_dim} * h_.kv_heads[layer]) {}

  Status Declare(LayerWeights* weights) {
    weights_ = weights;
    EBB_RETURN_IF_ERROR(DeclareProjections());
    EBB_RETURN_IF_ERROR(DeclareAttention());
    return DeclareFeedForward();
  }

 private:
  [[nodiscard]] std::string Name(std::string_view part) const {
    return fmt::format("blk.{}.{}", layer_, part);
  }
  [[nodiscard]] bool Has(std::string_view name) const { return file_.FindTensor(name) != nullptr; }

  Status Matrix(std::string_view part, int64_t columns, int64_t rows, ggml_tensor** tensor) {
    EBB_ASSIGN_OR_RETURN(*tensor, loader_.Matrix(Name(part), columns, rows, Use::kMatmul));
    return OkStatus();
  }
  Status Vector(std::string_view part, int64_t size, ggml_tensor** tensor) {
    EBB_ASSIGN_OR_RETURN(*tensor, loader_.Vector(Name(part), size));
    return OkStatus();
  }

  Status DeclareProjections() {
    const Piece q = {.name = Name("attn_q.weight"), .size = query_rows_};
    const Piece k = {.name = Name("attn_k.weight"), .size = kv_rows_};
    const Piece v = {.name = Name("attn_v.weight"), .size = kv_rows_};
    EBB_ASSIGN_OR_RETURN(weights_->wqkv, loader_.JoinedMatrix({q, k, v}, h_.embed_dim));
    if (weights_->wqkv != nullptr) return OkStatus();
    EBB_RETURN_IF_ERROR(Matrix("attn_v.weight", h_.embed_dim, kv_rows_, &weights_->wv));
    EBB_ASSIGN_OR_RETURN(weights_->wqk, loader_.JoinedMatrix({q, k}, h_.embed_dim));
    if (weights_->wqk != nullptr) return OkStatus();
    EBB_RETURN_IF_ERROR(Matrix("attn_q.weight", h_.embed_dim, query_rows_, &weights_->wq));
    return Matrix("attn_k.weight", h_.embed_dim, kv_rows_, &weights_->wk);
  }

  Status DeclareAttention() {
    EBB_RETURN_IF_ERROR(Vector("attn_norm.weight", h_.embed_dim, &weights_->attn_norm));
    const std::string bq = Name("attn_q.bias"), bk = Name("attn_k.bias"), bv = Name("attn_v.bias");
    if (Has(bq) || Has(bk) || Has(bv)) {
      EBB_ASSIGN_OR_RETURN(weights_->bqkv, loader_.JoinedVector({{.name = bq, .size = query_rows_},
                                                                 {.name = bk, .size = kv_rows_},
                                                                 {.name = bv, .size = kv_rows_}},
                                                                query_rows_ + 2 * kv_rows_));
    }
    if (family_.qk_norm == Presence::kAlways) EBB_RETURN_IF_ERROR(DeclareQkNorm());
    if (family_.rope_factors == Presence::kOptional && Has("rope_freqs.weight")) {
      EBB_ASSIGN_OR_RETURN(weights_->rope_factors,
                           loader_.Vector("rope_freqs.weight", h_.rope_dims / 2));
    }
    EBB_RETURN_IF_ERROR(Matrix("attn_output.weight", query_rows_, h_.embed_dim, &weights_->wo));
    if (family_.output_bias == Presence::kOptional && Has(Name("attn_output.bias"))) {
      EBB_RETURN_IF_ERROR(Vector("attn_output.bias", h_.embed_dim, &weights_->bo));
    }
    if (family_.post_norms != Presence::kAlways) return OkStatus();
    return Vector("post_attention_norm.weight", h_.embed_dim, &weights_->post_attn_norm);
  }

  Status DeclareQkNorm() {
    // One row per head, so that the norms of all query and key heads are one node.
    const Piece q = {.name = Name("attn_q_norm.weight"), .size = h_.head_dim};
    const Piece k = {.name = Name("attn_k_norm.weight"), .size = h_.head_dim};
    for (const Piece& piece : {q, k}) {
      if (!Has(piece.name)) return Corrupt(fmt::format("the file lacks tensor {}", piece.name));
    }
    std::vector<Piece> pieces(h_.num_q_heads, q);
    pieces.resize(pieces.size() + h_.kv_heads[layer_], k);
    EBB_ASSIGN_OR_RETURN(weights_->qk_norm, loader_.JoinedVector(pieces, h_.head_dim));
    return OkStatus();
  }

  Status DeclareFeedForward() {
    EBB_RETURN_IF_ERROR(Vector("ffn_norm.weight", h_.embed_dim, &weights_->ffn_norm));
    if (family_.post_norms == Presence::kAlways) {
      EBB_RETURN_IF_ERROR(Vector("post_ffw_norm.weight", h_.embed_dim, &weights_->post_ffn_norm));
    }
    EBB_ASSIGN_OR_RETURN(
        weights_->ffn_gate_up,
        loader_.JoinedMatrix({{.name = Name("ffn_gate.weight"), .size = h_.feed_forward_dim},
                              {.name = Name("ffn_up.weight"), .size = h_.feed_forward_dim}},
                             h_.embed_dim));
    if (weights_->ffn_gate_up == nullptr) {
      EBB_RETURN_IF_ERROR(
          Matrix("ffn_gate.weight", h_.embed_dim, h_.feed_forward_dim, &weights_->ffn_gate));
      EBB_RETURN_IF_ERROR(
          Matrix("ffn_up.weight", h_.embed_dim, h_.feed_forward_dim, &weights_->ffn_up));
    }
    return Matrix("ffn_down.weight", h_.feed_forward_dim, h_.embed_dim, &weights_->ffn_down);
  }

  const GgufFile& file_;
  WeightLoader& loader_;
  const ModelFamily& family_;
  const Hyperparameters& h_;
  const int layer_;
  const int64_t query_rows_;
  const int64_t kv_rows_;
  LayerWeights* weights_ = nullptr;
};

}  // namespace

size_t MaxDeclarations(const Hyperparameters& hparams) {
  constexpr size_t kOutsideLayers = 4;
  return kOutsideLayers + hparams.num_layers * kMaxDeclarationsPerLayer;
}

Status DeclareWeights(const GgufFile& file, WeightLoader& loader, LoadedModel* model) {
  const Hyperparameters& h = model->hparams;
  EBB_ASSIGN_OR_RETURN(model->token_embedding,
                       loader.Matrix("token_embd.weight", h.embed_dim, h.vocab_size, Use::kRows));
  EBB_ASSIGN_OR_RETURN(model->output_norm, loader.Vector("output_norm.weight", h.embed_dim));
  const bool tied = file.FindTensor("output.weight") == nullptr;
  EBB_ASSIGN_OR_RETURN(model->output, loader.Matrix(tied ? "token_embd.weight" : "output.weight",
                                                    h.embed_dim, h.vocab_size, Use::kMatmul));
  model->layers.resize(h.num_layers);
  std::map<int, ggml_tensor*> kept_channels;  // by the number of kv heads
  for (int i = 0; i < h.num_layers; ++i) {
    LayerWeights& layer = model->layers[i];
    EBB_RETURN_IF_ERROR(LayerLayout(file, loader, *model, i).Declare(&layer));
    if (h.eviction_layout != EvictionLayout::kQueryLastChannel) continue;
    ggml_tensor*& kept = kept_channels[h.kv_heads[i]];
    if (kept == nullptr) kept = loader.Zeros(h.head_dim, h.num_q_heads + h.kv_heads[i]);
    layer.kept_channels = kept;
  }
  if (h.eviction_layout == EvictionLayout::kAdapter) {
    EBB_RETURN_IF_ERROR(DeclareMarks(loader, model));
  }
  return loader.CheckAllDeclared();
}

std::array<std::string, 2> MarkTensorNames(int layer) {
  return {fmt::format("blk.{}.attn_dms_alpha_norm.weight", layer),
          fmt::format("blk.{}.attn_dms_alpha.weight", layer)};
}

Status DeclareMarks(WeightLoader& loader, LoadedModel* model) {
  const Hyperparameters& h = model->hparams;
  for (int i = 0; i < h.num_layers; ++i) {
    const auto [norm, matrix] = MarkTensorNames(i);
    LayerWeights& layer = model->layers[i];
    EBB_ASSIGN_OR_RETURN(layer.alpha_norm, loader.Vector(norm, h.embed_dim));
    EBB_ASSIGN_OR_RETURN(layer.alpha,
                         loader.Matrix(matrix, h.embed_dim, h.kv_heads[i], Use::kMatmul));
  }
  return OkStatus();
}

void FillKeptChannels(const LoadedModel& model) {
  const Hyperparameters& h = model.hparams;
  for (int i = 0; i < h.num_layers; ++i) {
    ggml_tensor* const channels = model.layers[i].kept_channels;
    if (channels == nullptr) return;
    auto* kept = static_cast<float*>(channels->data);
    std::fill_n(kept, ggml_nelements(channels), 1.0f);
    const int heads_per_group = h.num_q_heads / h.kv_heads[i];
    for (int head = 0; head < h.num_q_heads; head += heads_per_group) {
      kept[(head + 1) * h.head_dim - 1] = 0;
    }
  }
}

}  // namespace ebb
