// A run in a pod of a TrainingModel: the environment gives the task, and the node's agent gets
// progress, the trained file and the result.
#pragma once

#include <functional>
#include <memory>

#include "base/context.h"
#include "base/result.h"
#include "contract.h"
#include "job.h"
#include "os/file_system.h"
#include "reporter.h"
#include "training/run.h"
#include "worker_api.h"

namespace varda::trainapp {

/// The collaborators of a worker. Tests replace the training and shorten the pauses.
struct WorkerParts {
  std::function<Result<Trained>(const Context&, const Job&, training::Observer&)> train;
  // Null: read_contract(). `api` is null without a worker API.
  std::function<Result<Contract>(const Context&, const Environment&, WorkerApi* api)> contract = {};
  os::FileSystem& fs;
  WorkerApi::Options api = {};
  Reporter::Options reporter = {};
};

/// Trains and hands over the result. Returns the exit code: 0 done, 1 failed and a retry may help,
/// 2 wrong input, 128 + signal after a stop. A complete result of an earlier start is handed over
/// without training.
int work(const Context& ctx, const Environment& environment, WorkerParts parts);

/// The exit code for a failure: 2 for wrong input, 128 + signal after a stop, else 1.
int exit_code_of(const Error& error);

/// Makes the directory, and locks it against a second run. After a success the caller may remove
/// the lock file. kUnavailable: another run has the directory.
Result<std::unique_ptr<os::FileLock>> claim_directory(os::FileSystem& fs,
                                                      const os::Path& directory);
inline constexpr const char* kLockFile = ".varda-train.lock";

}  // namespace varda::trainapp
