#include "tests/cli/program.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <sstream>

namespace ebb {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kLongest = std::chrono::seconds(120);

struct Pipe {
  int read_end = -1;
  int write_end = -1;
  Pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) std::abort();
    read_end = ends[0];
    write_end = ends[1];
  }
  ~Pipe() {
    CloseRead();
    CloseWrite();
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  void CloseRead() { Close(&read_end); }
  void CloseWrite() { Close(&write_end); }

 private:
  static void Close(int* end) {
    if (*end >= 0) close(*end);
    *end = -1;
  }
};

[[noreturn]] void Execute(const ProgramRun& run, const Pipe& in, const Pipe& out, const Pipe& err) {
  dup2(in.read_end, STDIN_FILENO);
  dup2(out.write_end, STDOUT_FILENO);
  dup2(err.write_end, STDERR_FILENO);
  for (const auto& [name, value] : run.environment) setenv(name.c_str(), value.c_str(), 1);
  std::vector<std::string> words = WithProgram(run.arguments);
  std::vector<char*> arguments;
  for (std::string& one : words) arguments.push_back(one.data());
  arguments.push_back(nullptr);
  execv(arguments[0], arguments.data());
  _exit(127);
}

// Reads what is there. False at the end of the stream.
bool ReadSome(int file, std::string* text) {
  char buffer[4096];
  const ssize_t count = read(file, buffer, sizeof(buffer));
  if (count <= 0) return false;
  text->append(buffer, static_cast<size_t>(count));
  return true;
}

class Listener {
 public:
  Listener(const ProgramRun& run, pid_t child, Pipe* in, Pipe* out, Pipe* err)
      : run_(run), child_(child), in_(*in), out_(*out), err_(*err) {}

  // Until the program has closed both outputs.
  void Listen(ProgramEnd* end) {
    std::string_view input = run_.input;
    while (out_.read_end >= 0 || err_.read_end >= 0) {
      if (input.empty()) in_.CloseWrite();
      if (Clock::now() > deadline_) kill(child_, SIGKILL);
      pollfd files[] = {
          {out_.read_end, POLLIN, 0}, {err_.read_end, POLLIN, 0}, {in_.write_end, POLLOUT, 0}};
      poll(files, 3, 100);
      if (files[0].revents != 0 && !ReadSome(out_.read_end, &end->out)) out_.CloseRead();
      if (files[1].revents != 0 && !ReadSome(err_.read_end, &end->err)) err_.CloseRead();
      if (files[2].revents != 0) WriteSome(&input);
      Interfere(end->out.size());
    }
  }

 private:
  void WriteSome(std::string_view* input) {
    const ssize_t count = write(in_.write_end, input->data(), input->size());
    input->remove_prefix(count > 0 ? static_cast<size_t>(count) : input->size());
  }
  void Interfere(size_t received) {
    if (run_.close_stdout_after && received >= *run_.close_stdout_after) out_.CloseRead();
    if (run_.interrupt_after && received >= *run_.interrupt_after && !interrupted_) {
      interrupted_ = true;
      if (!run_.interfere) {
        kill(child_, run_.signal);
      } else {
        run_.interfere();
      }
    }
  }

  const ProgramRun& run_;
  pid_t child_;
  Pipe& in_;
  Pipe& out_;
  Pipe& err_;
  bool interrupted_ = false;
  Clock::time_point deadline_ = Clock::now() + kLongest;
};

}  // namespace

ProgramEnd RunEbb(const ProgramRun& run) {
  std::signal(SIGPIPE, SIG_IGN);  // the program may end before it has read its input
  Pipe in;
  Pipe out;
  Pipe err;
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGPIPE, SIG_DFL);
    Execute(run, in, out, err);
  }
  in.CloseRead();
  out.CloseWrite();
  err.CloseWrite();
  ProgramEnd end;
  Listener(run, child, &in, &out, &err).Listen(&end);
  int state = 0;
  waitpid(child, &state, 0);
  end.exit_code = WIFSIGNALED(state) ? 128 + WTERMSIG(state) : WEXITSTATUS(state);
  if (end.exit_code == 128 + SIGKILL) end.exit_code = -1;
  return end;
}

ProgramEnd RunEbb(const std::string& arguments) { return RunEbb({.arguments = Words(arguments)}); }

std::vector<std::string> WithProgram(std::vector<std::string> arguments) {
  std::string program = EBB_BINARY_PATH;
  if (!arguments.empty() && arguments.front().starts_with("ebb-")) {
    program.append(arguments.front(), std::string_view("ebb").size());
    arguments.erase(arguments.begin());
  }
  arguments.insert(arguments.begin(), std::move(program));
  return arguments;
}

std::vector<std::string> Words(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

std::string LastLine(const std::string& text) {
  const size_t end = text.find_last_not_of('\n');
  if (end == std::string::npos) return "";
  const size_t begin = text.rfind('\n', end);
  const size_t first = begin == std::string::npos ? 0 : begin + 1;
  return text.substr(first, end + 1 - first);
}

}  // namespace ebb
