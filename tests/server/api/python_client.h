// Client packages of Python against the server, where a Python has them: EBB_OPENAI_PYTHON names
// the interpreter of an environment, else it is python3.
#ifndef EBB_TESTS_SERVER_API_PYTHON_CLIENT_H_
#define EBB_TESTS_SERVER_API_PYTHON_CLIENT_H_

#include <optional>
#include <string>
#include <vector>

#include "apps/common/terminal/subprocess.h"

namespace ebb::server {

// "python3 has no package openai; ...", or nothing where it has it.
[[nodiscard]] std::optional<std::string> WhyNoPython(const std::string& package);

// What a script writes, and how it ends.
[[nodiscard]] cli::ProcessResult RunPython(const std::string& script,
                                           const std::vector<std::string>& arguments);

}  // namespace ebb::server

#endif  // EBB_TESTS_SERVER_API_PYTHON_CLIENT_H_
