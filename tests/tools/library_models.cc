// Writes a model of an architecture that libllama knows, with random weights: ARCHITECTURE FILE
// [TYPE [experts] [KEY=SIZE ...]]; without a file it lists the architectures. Sizes that are not
// given are tiny.
#include <cstdio>
#include <string>

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
    } else if (equals != std::string::npos) {
      options.sizes[argument.substr(0, equals)] =
          static_cast<uint32_t>(std::stoul(argument.substr(equals + 1)));
    } else {
      std::fprintf(stderr, "expected experts or KEY=SIZE, found %s\n", argv[i]);
      return 1;
    }
  }
  const ebb::Status status = ebb::WriteLibraryModel(options, argv[2]);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
