// Runs a part of a test in a child process: limits, users and forks do not affect other tests.
#pragma once

#include <csignal>
#include <cstdio>
#include <fcntl.h>
#include <functional>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "os/testing/test_directory.h"

namespace varda::os::testing {

struct Ended {
  int code = 0;  // 128 + signal if killed
  std::string out, err;
};

/// Runs `body` in a child and waits for its end. `body` returns the exit code. Call while the test
/// program has one thread.
inline Ended run_in_child(const std::function<int()>& body) {
  const TestDirectory output;
  std::fflush(nullptr);
  const pid_t child = ::fork();
  CHECK(child >= 0);
  if (child == 0) {
    for (const auto& [name, fd] :
         {std::pair("out", STDOUT_FILENO), std::pair("err", STDERR_FILENO)}) {
      const int file = ::open((output / name).c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
      if (file < 0 || ::dup2(file, fd) < 0) ::_exit(99);
      ::close(file);
    }
    const int code = body();
    std::fflush(nullptr);
    ::_exit(code);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) CHECK(errno == EINTR);
  return {WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status), output.read("out"),
          output.read("err")};
}

/// For `body` of run_in_child(): root ignores permission bits.
inline void become_ordinary_user() {
  constexpr uid_t kUnprivilegedUid = 65534;
  if (::geteuid() == 0)
    CHECK(::setresgid(kUnprivilegedUid, kUnprivilegedUid, kUnprivilegedUid) == 0 &&
          ::setresuid(kUnprivilegedUid, kUnprivilegedUid, kUnprivilegedUid) == 0);
}

}  // namespace varda::os::testing
