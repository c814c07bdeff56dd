#include "tests/server/tools_model.h"

#include <string>

#include "tests/support/gguf_edit.h"
#include "tests/support/random_gguf.h"
#include "tests/support/temp_folder.h"

namespace ebb::server {
namespace {

constexpr const char* kTemplate =
    "{%- if tools %}{{- '<|im_start|>system\\n<tools>' }}"
    "{%- for tool in tools %}{{- '\\n' }}{{- tool | tojson }}{%- endfor %}"
    "{{- '\\n</tools><|im_end|>\\n' }}{%- endif %}"
    "{%- for message in messages %}"
    "{%- if message.role == 'tool' %}"
    "{{- '<|im_start|>user\\n<tool_response>\\n' + message.content + "
    "'\\n</tool_response><|im_end|>\\n' }}"
    "{%- elif message.role == 'assistant' %}{{- '<|im_start|>assistant\\n' + message.content }}"
    "{%- for tool_call in message.tool_calls %}"
    "{{- '\\n<tool_call>\\n{\"name\": \"' + tool_call.function.name + '\", \"arguments\": ' }}"
    "{{- tool_call.function.arguments | tojson }}{{- '}\\n</tool_call>' }}{%- endfor %}"
    "{{- '<|im_end|>\\n' }}"
    "{%- else %}{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
    "{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}";

}  // namespace

Status WriteModelWithTools(const RandomGgufOptions& options, const std::string& path) {
  EBB_RETURN_IF_ERROR(WriteRandomGguf(options, path));
  EBB_ASSIGN_OR_RETURN(GgufEdit edit, GgufEdit::Open(path));
  edit.SetText("tokenizer.chat_template", kTemplate);
  return edit.Save(path);
}

Result<std::shared_ptr<const Model>> LoadModelWithTools() {
  const TempFolder folder;
  const std::string path = folder.File("model.gguf");
  EBB_RETURN_IF_ERROR(WriteModelWithTools({.num_layers = 2, .context = 2048}, path));
  return Model::Load({.path = path});
}

}  // namespace ebb::server
