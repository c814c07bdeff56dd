#include "apps/common/program.h"
#include "apps/lab/commands.h"

int main(int argc, char** argv) {
  return ebb::cli::ProgramMain(ebb::cli::LabProgram(), argc, argv);
}
