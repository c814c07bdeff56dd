// Includes the internal headers of libllama with which this folder builds graphs. They are no
// stable interface: their contents depend on the pinned source, and only src/model/library may
// include this file.
#ifndef EBB_MODEL_LIBRARY_INTERNALS_H_
#define EBB_MODEL_LIBRARY_INTERNALS_H_

#include <llama-adapter.h>
#include <llama-arch.h>
#include <llama-batch.h>
#include <llama-cparams.h>
#include <llama-graph.h>
#include <llama-hparams.h>
#include <llama-kv-cache-iswa.h>
#include <llama-kv-cache.h>
#include <llama-memory-hybrid-iswa.h>
#include <llama-memory-hybrid.h>
#include <llama-memory-recurrent.h>
#include <llama-memory.h>
#include <llama-model.h>
#include <llama.h>

#endif  // EBB_MODEL_LIBRARY_INTERNALS_H_
