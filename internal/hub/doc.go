// Package hub finds models in the cache that Python's huggingface_hub keeps,
// and downloads them into it. Both programs may use one cache at once:
//
//	CACHE/
//	    models--OWNER--NAME/
//	        refs/REVISION               the commit that a branch or tag stood for
//	        snapshots/COMMIT/FILE       relative link to a blob
//	        blobs/ETAG                  a file's bytes
//	    .locks/models--OWNER--NAME/ETAG.lock
//
// A file that is being downloaded lies in blobs/ETAG.godflash-part, of which
// the hub's own client knows nothing, and continues there after a break. Its
// bytes are compared with their SHA-256 (files in large file storage) or their
// Git object id (the others) before it is renamed. Links are made when all
// blobs are complete, config.json's last, and the ref after them: what
// Cached finds is whole.
//
// Nothing here reads the environment but FromEnv, and nothing uses the network
// but Download, and Get for a model that is not in the cache.
package hub
