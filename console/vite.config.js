import { defineConfig } from "vite";

// One script and one sheet under fixed names: the server embeds them and tells versions apart by their hashes.
export default defineConfig({
  base: "./",
  // Beside the page's own address, whatever path a proxy serves it under.
  experimental: { renderBuiltUrl: (name) => `console/${name}` },
  server: {
    // For work on the page: `npx vite` beside a running `mainspring dev`.
    proxy: { "/v1": process.env.MAINSPRING_SERVER ?? "http://127.0.0.1:7464" },
  },
  build: {
    outDir: "../scheduler/api/console",
    emptyOutDir: true,
    target: "es2022",
    // They know light-dark().
    cssTarget: ["chrome123", "firefox120", "safari17.5"],
    modulePreload: false,
    cssCodeSplit: false,
    rollupOptions: {
      output: {
        entryFileNames: "app.js",
        assetFileNames: "app[extname]",
      },
    },
  },
});
