#include "apps/bench/commands.h"
#include "apps/common/program.h"

int main(int argc, char** argv) {
  return ebb::cli::ProgramMain(ebb::cli::BenchProgram(), argc, argv);
}
