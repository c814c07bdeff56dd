// Writes a tiny model of an architecture that libllama knows: ARCHITECTURE FILE [TYPE] [experts],
// or lists the architectures.
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
  options.has_experts = argc > 4;
  const ebb::Status status = ebb::WriteLibraryModel(options, argv[2]);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
