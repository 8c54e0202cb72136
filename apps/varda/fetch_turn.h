// One `varda fetch` at a time works on a directory: two of them would pull their scratch files from under each other.
#pragma once

#include <filesystem>

#include "base/context.h"

namespace varda::app {

/// Held until destroyed or the process ends. Not thread-safe.
class FetchTurn {
 public:
  /// Waits until nobody else is at work on `to`, and says so in the log. Where no lock can be made nobody can download either: then
  /// there is nothing to wait for, and the download says what is wrong. Fails when the context ends.
  static Result<FetchTurn> wait(const Context& ctx, const std::filesystem::path& to);
  FetchTurn(FetchTurn&& other) noexcept;
  FetchTurn& operator=(FetchTurn&&) = delete;
  ~FetchTurn();

 private:
  FetchTurn(std::filesystem::path file, int fd);
  std::filesystem::path file_;  // ".NAME.fetch.lock" beside the directory; gone with us
  int fd_ = -1;                 // -1: no lock could be made
};

}  // namespace varda::app
