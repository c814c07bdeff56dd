// Runs a fuzz target without libFuzzer, so that the ordinary build and its tests keep it working:
// over every file of the folders and files given, and over deterministic mutations of each.
// EBB_FUZZ_MUTATIONS is the number of mutations; EBB_FUZZ_SEED chooses others; EBB_FUZZ_KEEP names
// a file that each input is written to before it is run, so that one which ends the process is
// left.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
// A target may have one.
extern "C" __attribute__((weak)) size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size,
                                                                size_t max_size, unsigned seed);

namespace {

int NumberOf(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::atoi(text);
}

using Bytes = std::vector<uint8_t>;

// In a block of exactly its size, so that the address sanitizer sees a read past the end.
void Run(const Bytes& input) {
  if (const char* path = std::getenv("EBB_FUZZ_KEEP"); path != nullptr) {
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(input.data()), std::ssize(input));
  }
  const auto copy = std::make_unique<uint8_t[]>(input.size());
  std::copy(input.begin(), input.end(), copy.get());
  LLVMFuzzerTestOneInput(copy.get(), input.size());
}

// By the target's own mutator, where it has one, or: truncates, flips bits, or writes an extreme
// value over a few neighbouring bytes, as a length field that lies would have it.
Bytes Mutate(Bytes input, std::mt19937& random) {
  if (input.empty()) return input;
  if (LLVMFuzzerCustomMutator != nullptr && random() % 4 != 0) {
    input.resize(LLVMFuzzerCustomMutator(input.data(), input.size(), input.size(), random()));
    return input;
  }
  const size_t at = random() % input.size();
  switch (random() % 3) {
    case 0:
      input.resize(at);
      break;
    case 1:
      input[at] ^= static_cast<uint8_t>(1u << (random() % 8));
      break;
    default:
      std::fill_n(input.begin() + static_cast<ptrdiff_t>(at),
                  std::min<size_t>(8, input.size() - at),
                  static_cast<uint8_t>(random() % 2 == 0 ? 0xff : 0x00));
  }
  return input;
}

std::vector<std::filesystem::path> Inputs(int argc, char** argv) {
  std::vector<std::filesystem::path> paths;
  for (int i = 1; i < argc; ++i) {
    if (!std::filesystem::is_directory(argv[i])) {
      paths.emplace_back(argv[i]);
      continue;
    }
    for (const auto& entry : std::filesystem::recursive_directory_iterator(argv[i])) {
      if (entry.is_regular_file()) paths.push_back(entry.path());
    }
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace

int main(int argc, char** argv) {
  const auto paths = Inputs(argc, argv);
  if (paths.empty()) {
    std::fprintf(stderr, "usage: %s FILE|FOLDER...\nno input was found\n", argv[0]);
    return 2;
  }
  Run({});
  const int num_mutations = NumberOf("EBB_FUZZ_MUTATIONS", 64);
  std::mt19937 random(NumberOf("EBB_FUZZ_SEED", 1));
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    const Bytes input((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    if (file.bad() || !file.is_open()) {
      std::fprintf(stderr, "cannot read %s\n", path.c_str());
      return 2;
    }
    Run(input);
    for (int i = 0; i < num_mutations; ++i) Run(Mutate(input, random));
  }
  std::printf("%zu inputs, %d mutations each\n", paths.size(), num_mutations);
  return 0;
}
