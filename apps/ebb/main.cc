#include "apps/common/program.h"
#include "apps/ebb/commands.h"

int main(int argc, char** argv) {
  return ebb::cli::ProgramMain(ebb::cli::EbbProgram(), argc, argv);
}
