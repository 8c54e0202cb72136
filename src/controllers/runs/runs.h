// Parts that all runs share: kinds of jobs whose result is a version of a Model. All functions are
// pure, except those of writes.h.
//
//   inputs.h      the initial model, and a Dataset on a node
//   program.h     our programs as workers
//   attempts.h    starts and failures
//   report.h      files, results and errors that a worker reports
//   result.h      the Model of a result
//   conditions.h  conditions of the status
//   ended_pods.h  pods after the end
//   writes.h      status, Model and failed pods
#pragma once

#include "controllers/runs/attempts.h"
#include "controllers/runs/conditions.h"
#include "controllers/runs/ended_pods.h"
#include "controllers/runs/inputs.h"
#include "controllers/runs/program.h"
#include "controllers/runs/report.h"
#include "controllers/runs/result.h"
#include "controllers/runs/writes.h"
