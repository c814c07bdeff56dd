// VK_EXT_layer_settings, as far as ggml's Vulkan backend needs it, for headers that are older than the
// extension (it came with 1.3.272; Debian 12 has 1.3.239). Layout and numbers are those of the
// specification, so that a newer layer understands them.
#ifndef EBB_CMAKE_LLAMA_CPP_GGML_VULKAN_LAYER_SETTINGS_H_
#define EBB_CMAKE_LLAMA_CPP_GGML_VULKAN_LAYER_SETTINGS_H_

#include <vulkan/vulkan_core.h>

#include <cstdint>
#include <vector>

#ifndef VK_EXT_layer_settings

namespace vk {

enum class LayerSettingTypeEXT { eBool32 = 0 };

struct LayerSettingEXT {
  const char* layer_name;
  const char* setting_name;
  LayerSettingTypeEXT type;
  uint32_t num_values;
  const void* values;
};

struct LayerSettingsCreateInfoEXT {
  explicit LayerSettingsCreateInfoEXT(const std::vector<LayerSettingEXT>& all)
      : num_settings(static_cast<uint32_t>(all.size())), settings(all.data()) {}

  VkStructureType type = static_cast<VkStructureType>(1000496000);
  const void* next = nullptr;
  uint32_t num_settings;
  const LayerSettingEXT* settings;
};

}  // namespace vk

#endif  // VK_EXT_layer_settings

#endif  // EBB_CMAKE_LLAMA_CPP_GGML_VULKAN_LAYER_SETTINGS_H_
