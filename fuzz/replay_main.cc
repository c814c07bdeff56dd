// Runs a fuzz target without libFuzzer, so that the ordinary build and its tests keep it working:
// over every file of the folders and files given, and over deterministic mutations of each.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

constexpr int kMutationsPerInput = 64;

using Bytes = std::vector<uint8_t>;

// In a block of exactly its size, so that the address sanitizer sees a read past the end.
void Run(const Bytes& input) {
  const auto copy = std::make_unique<uint8_t[]>(input.size());
  std::copy(input.begin(), input.end(), copy.get());
  LLVMFuzzerTestOneInput(copy.get(), input.size());
}

// Truncates, flips bits, or writes an extreme value over a few neighbouring bytes, as a length
// field that lies would have it.
Bytes Mutate(Bytes input, std::mt19937& random) {
  if (input.empty()) return input;
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
  std::mt19937 random(1);
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    const Bytes input((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    if (file.bad() || !file.is_open()) {
      std::fprintf(stderr, "cannot read %s\n", path.c_str());
      return 2;
    }
    Run(input);
    for (int i = 0; i < kMutationsPerInput; ++i) Run(Mutate(input, random));
  }
  std::printf("%zu inputs, %d mutations each\n", paths.size(), kMutationsPerInput);
  return 0;
}
