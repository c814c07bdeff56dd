#include "ebb/model.h"

#include <fmt/format.h>
#include <ggml-backend.h>
#include <ggml.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <functional>
#include <utility>
#include <vector>

#include "src/base/llama_runtime.h"
#include "src/model/adapter.h"
#include "src/model/chat/chat.h"
#include "src/model/eviction_marks.h"
#include "src/model/library/library_model.h"
#include "src/model/loaded/decoder_graph.h"
#include "src/model/loaded/gguf_file.h"
#include "src/model/loaded/loaded_model.h"
#include "src/model/loaded/product_layout.h"
#include "src/model/loaded/vocabulary.h"
#include "src/model/loaded/weights.h"

namespace ebb {
namespace {

// Returns the weight type that holds the most elements, as users write it: "Q4_1".
std::string MainTypeName(const GgufFile& file) {
  std::array<int64_t, GGML_TYPE_COUNT> elements = {};
  for (const GgufTensor& tensor : file.tensors()) {
    if (tensor.dims[1] > 1) elements[tensor.type] += tensor.dims[0] * tensor.dims[1];
  }
  const auto most = std::max_element(elements.begin(), elements.end());
  std::string name = ggml_type_name(static_cast<ggml_type>(most - elements.begin()));
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return std::toupper(c); });
  return name;
}

bool AreAlike(const std::vector<int>& numbers) {
  return std::ranges::adjacent_find(numbers, std::ranges::not_equal_to()) == numbers.end();
}

ModelShape ShapeOf(const Hyperparameters& h) {
  return {.num_layers = h.num_layers,
          .num_q_heads = h.num_q_heads,
          .num_kv_heads = *std::ranges::max_element(h.kv_heads),
          .head_dim = h.head_dim,
          .has_values = h.has_values,
          .embed_dim = h.embed_dim,
          .vocab_size = h.vocab_size,
          .trained_context = h.trained_context,
          .kv_heads_by_layer = AreAlike(h.kv_heads) ? std::vector<int>() : h.kv_heads,
          .windows = h.windows,
          .layers_read =
              h.layers_read.size() == size_t(h.num_layers) ? std::vector<int>() : h.layers_read};
}

// Fills in what the model's library knows of its layers.
void SetShape(LoadedModel* model) {
  model->hparams = model->library->hparams();
  model->shape = ShapeOf(model->hparams);
  model->layers.resize(model->hparams.num_layers);
  for (int i = 0; i < model->hparams.num_layers; ++i) {
    model->layers[i].rope_factors = model->library->RopeFactors(i);
    model->layers[i].sinks = model->library->Sinks(i);
  }
}

// Fills in all that can be known without touching a weight.
Status Describe(const GgufFile& file, const ModelOptions& options, LoadedModel* model) {
  std::string& family = model->family_name;
  EBB_RETURN_IF_ERROR(file.Read("general.architecture", GgufFile::Need::kRequired, &family));
  EBB_ASSIGN_OR_RETURN(model->name, file.ReadName());
  EBB_ASSIGN_OR_RETURN(model->library, LibraryModel::Open(file, options));
  SetShape(model);
  if (IsHead(model->hparams)) model->target = options.target;
  return ReadEvictionMarks(file, family, &model->hparams);
}

// Makes a model of the MTP layer of `trunk`, which has read its weights.
std::unique_ptr<LoadedModel> MtpLayerOf(const LoadedModel& trunk,
                                        std::unique_ptr<LibraryModel> library) {
  auto layer = std::make_unique<LoadedModel>();
  layer->family_name = trunk.family_name;
  layer->name = trunk.name;
  layer->type_name = trunk.type_name;
  layer->fingerprint = trunk.fingerprint;
  layer->has_weights = trunk.has_weights;
  layer->vocab_model = trunk.vocab_model;
  layer->buffers = std::make_unique<WeightBuffers>();
  layer->library = std::move(library);
  SetShape(layer.get());
  return layer;
}

// Reads the weights, the tokenizer and the chat template.
Status LoadParts(const GgufFile& file, const ModelOptions& options, LoadedModel* model) {
  model->type_name = options.weights == WeightMode::kDequantize ? "F32" : MainTypeName(file);
  EBB_RETURN_IF_ERROR(
      model->library->LoadWeights(file, options.weights, options.for_device, model->buffers.get()));
  if (model->has_weights) model->fingerprint = file.Fingerprint();
  model->vocab_model = model->library->TakeModel();
  model->chat = std::make_unique<ModelChat>(model->vocab_model.get(), options.chat_template);
  model->longest_token_bytes = LongestTokenBytes(*model->vocab_model);
  model->weight_bytes += model->library->weight_bytes();
  model->lookup_bytes = model->library->lookup_bytes();
  model->expert_bytes = model->library->expert_bytes();
  model->expert_share = model->library->expert_share();
  return OkStatus();
}

Status InFile(const std::string& path, const Status& status) {
  if (status.ok()) return status;
  return status.WithPrefix(path);
}

Status LoadFrom(const GgufFile& file, const ModelOptions& options, LoadedModel* model) {
  EBB_RETURN_IF_ERROR(InFile(options.path, Describe(file, options, model)));
  model->buffers = std::make_unique<WeightBuffers>();
  uint64_t adapter = 0;
  if (options.adapter.empty()) {
    EBB_RETURN_IF_ERROR(InFile(options.path, LoadMarkWeights(file, options.weights, model)));
  } else {
    EBB_ASSIGN_OR_RETURN(adapter, LoadAdapter(options, model));
  }
  EBB_RETURN_IF_ERROR(
      InFile(options.path, model->library->CheckTakesMarks(model->hparams.eviction_layout)));
  EBB_RETURN_IF_ERROR(InFile(options.path, LoadParts(file, options, model)));
  if (!options.adapter.empty()) {
    model->fingerprint = XXH3_64bits_withSeed(&adapter, sizeof(adapter), model->fingerprint);
  }
  return OkStatus();
}

}  // namespace

std::vector<int> RowsReadBy(const Hyperparameters& head) {
  return head.target_blocks.empty() ? std::vector<int>{kHeadRows} : head.target_blocks;
}

LoadedModel::LoadedModel() = default;
LoadedModel::~LoadedModel() = default;

Status LoadedModel::CheckFilesUnchanged() const {
  for (const MappedFile& part : buffers->mappings) EBB_RETURN_IF_ERROR(part.CheckUnchanged());
  return OkStatus();
}

Model::Model(std::unique_ptr<LoadedModel> loaded) : loaded_(std::move(loaded)) {}
Model::~Model() = default;

Result<std::shared_ptr<const Model>> Model::Load(const ModelOptions& options) {
  EBB_RETURN_IF_ERROR(CheckProcessor());
  EBB_ASSIGN_OR_RETURN(GgufFile file, options.contents.empty()
                                          ? GgufFile::Open(options.path)
                                          : GgufFile::Of(options.contents, options.path));
  auto loaded = std::make_unique<LoadedModel>();
  loaded->for_device = options.for_device;
  loaded->has_weights = options.weights != WeightMode::kUnread;
  if (Status status = LoadFrom(file, options, loaded.get()); !status.ok()) {
    return file.ErrorOfLoading(status);
  }
  loaded->buffers->mappings = GgufFile::TakeMappings(std::move(file));
  // Weights read while another program wrote them may be anything, so the files are checked after
  // reading.
  EBB_RETURN_IF_ERROR(loaded->CheckFilesUnchanged());
  std::unique_ptr<Model> made(new Model(std::move(loaded)));
  made->TakeMtpLayer();
  std::shared_ptr<const Model> model = std::move(made);
  if (options.chat_template.empty()) return model;
  const ChatMessage question = {.role = "user", .content = "?"};
  const Result<ChatPrompt> prompt = model->FormatChat({&question, 1}, Thinking::kModelDefault);
  // A template that refuses this question may still accept others, so only a template that does not
  // parse is an error.
  if (prompt.status().code() != StatusCode::kCorrupt) return model;
  return InvalidArgument("chat_template", prompt.status().message());
}

// The last layer of a trunk computes all tokens of a prompt for the sake of their hidden rows,
// which must not change the logits of the last token.
void Model::TakeMtpLayer() {
  std::unique_ptr<LibraryModel> layer = loaded_->library->TakeMtp();
  loaded_->mtp_obstacle = layer == nullptr ? loaded_->library->mtp_obstacle() : batch_dependence();
  if (!loaded_->mtp_obstacle.empty()) return;
  loaded_->mtp.reset(new Model(MtpLayerOf(*loaded_, std::move(layer))));
}

const ModelShape& Model::shape() const { return loaded_->shape; }
std::string_view Model::family() const { return loaded_->family_name; }
std::string Model::description() const {
  const std::string& adapter = loaded_->adapter_name;
  return fmt::format("{}, {}, {}{}", loaded_->name, loaded_->family_name, loaded_->type_name,
                     adapter.empty() ? "" : ", adapter " + adapter);
}
bool MultipliesComputedMatrices(const LoadedModel& model) {
  return !model.library->computed_product().empty();
}

uint64_t HashOfKernels(const LoadedModel& model) {
  std::string kernels = InstructionsInUse();
  for (const ggml_tensor* weight : model.library->multiplied_weights()) {
    kernels +=
        fmt::format(" {} {}", ggml_type_name(weight->type),
                    weight->buffer != nullptr ? ggml_backend_buffer_name(weight->buffer) : "");
  }
  return XXH3_64bits(kernels.data(), kernels.size());
}

std::string Model::batch_dependence() const {
  const std::string& product = loaded_->library->computed_product();
  if (!product.empty()) {
    return fmt::format("the graph of {} multiplies computed matrices ({})", loaded_->family_name,
                       product);
  }
  std::vector<const ggml_tensor*> weights = loaded_->library->multiplied_weights();
  for (const LayerWeights& layer : loaded_->layers) {
    for (ggml_tensor* const LayerWeights::*weight : kLayerWeights) weights.push_back(layer.*weight);
  }
  for (const ggml_tensor* weight : weights) {
    if (weight == nullptr || weight->ne[1] == 1 || HasSameBitsInBatches(*weight)) continue;
    return fmt::format("this processor multiplies weights of type {} differently in batches",
                       ggml_type_name(weight->type));
  }
  return {};
}
const std::string& Model::mtp_obstacle() const { return loaded_->mtp_obstacle; }
Speculation Model::draft_source() const { return loaded_->hparams.draft_source; }
uint64_t Model::weight_bytes() const { return loaded_->weight_bytes; }
float Model::attention_scale() const { return loaded_->hparams.attention_scale; }
int Model::eviction_window() const { return loaded_->hparams.eviction_window; }
int Model::eviction_shift() const { return loaded_->hparams.eviction_shift; }
float Model::trained_compression() const { return loaded_->hparams.trained_compression; }
uint64_t Model::fingerprint() const { return loaded_->fingerprint; }

}  // namespace ebb
