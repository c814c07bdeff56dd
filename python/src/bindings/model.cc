// ebb.Model.
#include "bindings.h"

namespace ebb::python {
namespace {

std::shared_ptr<Model> Load(const std::string& path, const std::string& adapter, bool dequantize,
                            int context, const std::string& chat_template, bool mtp,
                            std::shared_ptr<Model> target) {
  ModelOptions options = {.path = path};
  options.context = context;
  options.chat_template = chat_template;
  options.adapter = adapter;
  options.loads_mtp = mtp;
  options.target = std::move(target);
  if (dequantize) options.weights = WeightMode::kDequantize;
  auto model = WithoutGil([&] { return Model::Load(options); });
  // nanobind's holders are of objects that may change; nothing here changes a model.
  return std::const_pointer_cast<Model>(ValueOrRaise(std::move(model)));
}

}  // namespace

void BindModel(nb::module_& module) {
  nb::class_<Model>(
      module, "Model",
      "The weights, the tokenizer and the chat template of a GGUF file. Any number of "
      "engines and threads may share one.")
      .def_static(
          "load", &Load, nb::arg("path"), nb::arg("adapter") = "", nb::arg("dequantize") = false,
          nb::arg("context") = 0, nb::arg("chat_template") = "", nb::arg("mtp") = false,
          nb::arg("target").none() = nb::none(),
          "Maps a GGUF file. adapter: a file that makes the model mark rows; dequantize: "
          "weights are held as F32, for studies of exactness; context: the longest text in "
          "tokens, 0: as long as the model was trained for; chat_template: the Jinja "
          "source of a chat template in place of the file's own, or \"chatml\"; mtp: loads the "
          "file's layer for multi-token prediction, which guesses tokens; target: the model for "
          "which "
          "a file that holds a head guesses.")
      .def_prop_ro("shape", &Model::shape, nb::rv_policy::reference_internal)
      .def_prop_ro("description", &Model::description, "Name, architecture, format of the weights.")
      .def_prop_ro(
          "family", [](const Model& m) { return std::string(m.family()); },
          "The architecture as the file names it: \"llama\".")
      .def_prop_ro("weight_bytes", &Model::weight_bytes, "Bytes of the weights as held in memory.")
      .def_prop_ro("fingerprint", &Model::fingerprint, "A hash that identifies the files.")
      .def_prop_ro(
          "chat_template", [](const Model& m) { return std::string(m.chat_template()); },
          "The Jinja source of the chat template; empty: there is none.")
      .def(
          "tokenize",
          [](const Model& m, const std::string& text, bool add_bos, bool specials) {
            return ValueOrRaise(WithoutGil([&] {
              return m.Tokenize(text, add_bos ? Model::AddBos::kAsModelSays : Model::AddBos::kNo,
                                specials ? Model::Specials::kParse : Model::Specials::kAsText);
            }));
          },
          nb::arg("text"), nb::arg("add_bos") = true, nb::arg("specials") = true,
          "The tokens of a text. specials: whether \"<|im_start|>\" in it is one token.")
      .def(
          "detokenize",
          [](const Model& m, const std::vector<Token>& tokens, bool specials) {
            std::string text;
            for (const Token token : tokens) {
              if (token < 0 || token >= m.shape().vocab_size)
                throw nb::index_error("no such token");
              text += m.TokenText(
                  token, specials ? Model::ControlTokens::kShow : Model::ControlTokens::kHide);
            }
            return TextOf(text);
          },
          nb::arg("tokens"), nb::arg("specials") = false,
          "The text of tokens; halves of UTF-8 characters become U+FFFD.");
}

}  // namespace ebb::python
