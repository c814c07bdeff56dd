#include <exception>
#include <new>
#include <string>
#include <vector>

#include "ebb/status.h"
#include "src/cli/program.h"

int main(int argc, char** argv) {
  try {
    const std::vector<std::string> arguments(argv + 1, argv + argc);
    return static_cast<int>(ebb::cli::RunProgram(arguments));
  } catch (const std::bad_alloc&) {
    return static_cast<int>(ebb::cli::Fail(ebb::IoError("the system has no memory left")));
  } catch (const std::exception& error) {
    return static_cast<int>(ebb::cli::Fail(ebb::Internal(error.what())));
  }
}
