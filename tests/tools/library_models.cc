// Writes a model of an architecture that libllama knows, with random weights: ARCHITECTURE FILE
// [TYPE [experts] [repeat] [KEY=SIZE ...]]; without a file it lists the architectures. Sizes that
// are not given are tiny; KEY=SIZE,SIZE,... gives those of all layers. `repeat` repeats the weights
// of a few million, for models of real sizes.
#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/engine/library_models.h"

int main(int argc, char** argv) {
  if (argc < 3) {
    for (const ebb::LibraryModelOptions& model : ebb::AllLibraryModels()) {
      std::printf("%s%s\n", model.architecture.c_str(), model.has_experts ? " experts" : "");
    }
    return 0;
  }
  ebb::LibraryModelOptions options = {.architecture = argv[1]};
  if (argc > 3) options.weight_type = argv[3];
  for (int i = 4; i < argc; ++i) {
    const std::string argument = argv[i];
    const size_t equals = argument.find('=');
    if (argument == "experts") {
      options.has_experts = true;
    } else if (argument == "repeat") {
      options.repeats_weights = true;
    } else if (equals != std::string::npos) {
      const std::string key = argument.substr(0, equals);
      std::vector<uint32_t> sizes;
      std::istringstream list(argument.substr(equals + 1));
      for (std::string size; std::getline(list, size, ',');) {
        sizes.push_back(static_cast<uint32_t>(std::stoul(size)));
      }
      if (sizes.size() == 1) {
        options.sizes[key] = sizes.front();
      } else {
        options.sizes_by_layer[key] = sizes;
      }
    } else {
      std::fprintf(stderr, "expected experts, repeat or KEY=SIZE, found %s\n", argv[i]);
      return 1;
    }
  }
  const ebb::Status status = ebb::WriteLibraryModel(options, argv[2]);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
