// Runs client packages of Python against the server, if a Python has them. EBB_OPENAI_PYTHON names
// the interpreter of an environment; else python3 is used.
#ifndef EBB_TESTS_SERVER_API_PYTHON_CLIENT_H_
#define EBB_TESTS_SERVER_API_PYTHON_CLIENT_H_

#include <optional>
#include <string>
#include <vector>

#include "apps/common/terminal/subprocess.h"

namespace ebb::server {

// Returns why a package is missing, "python3 has no package openai; ..."; nothing if it is there.
[[nodiscard]] std::optional<std::string> WhyNoPython(const std::string& package);

// Runs a script and returns its output and exit code.
[[nodiscard]] cli::ProcessResult RunPython(const std::string& script,
                                           const std::vector<std::string>& arguments);

}  // namespace ebb::server

#endif  // EBB_TESTS_SERVER_API_PYTHON_CLIENT_H_
