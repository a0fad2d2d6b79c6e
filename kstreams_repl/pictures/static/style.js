// The panel's style sheet. Colours are JupyterLab's inside JupyterLab, else the system's.

export const STYLE = `
.ks-panel{font:12px ui-sans-serif,system-ui,sans-serif;color:var(--jp-ui-font-color1,inherit);container-type:inline-size;
--ks-edge:var(--jp-border-color1,#8888);--ks-face:var(--jp-layout-color1,#f6f8fa);--ks-dim:var(--jp-ui-font-color2,#59636e);
--ks-good:#1a7f37;--ks-wrong:#cf222e;--ks-care:#9a6700}
@media (prefers-color-scheme:dark){.ks-panel{--ks-face:var(--jp-layout-color1,#161b22);--ks-dim:var(--jp-ui-font-color2,#9198a1);
--ks-good:#3fb950;--ks-wrong:#f85149;--ks-care:#d29922}}
[data-jp-theme-light='true'] .ks-panel{--ks-good:#1a7f37;--ks-wrong:#cf222e;--ks-care:#9a6700}
[data-jp-theme-light='false'] .ks-panel{--ks-good:#3fb950;--ks-wrong:#f85149;--ks-care:#d29922}
.ks-panel .bar{display:flex;gap:6px;align-items:center;margin:4px 0;flex-wrap:wrap}
.ks-panel .tools{justify-content:flex-end;gap:4px}
.ks-panel .tools .history{display:flex;gap:14px;margin-right:auto;color:var(--ks-dim);align-items:center;flex-wrap:wrap}
.ks-panel .history span{display:inline-flex;gap:6px;align-items:center;font-variant-numeric:tabular-nums}
.ks-panel .spark{display:block;width:96px;height:20px;overflow:visible}
.ks-panel .spark polyline{fill:none;stroke:currentColor;stroke-width:1.3;vector-effect:non-scaling-stroke}
.ks-panel .spark polygon{fill:currentColor;opacity:.18}
.ks-panel button{font:inherit;padding:3px 10px;border:1px solid var(--ks-edge);border-radius:4px;cursor:pointer;
background:var(--ks-face);color:inherit}
.ks-panel .tools button,.ks-panel .drawer-head button{padding:1px 7px}
.ks-panel .tools button[aria-pressed=true]{border-color:var(--jp-brand-color1,#0969da);box-shadow:inset 0 0 0 1px var(--jp-brand-color1,#0969da)}
.ks-panel .tools .scale{min-width:4.5em;font-variant-numeric:tabular-nums}
.ks-panel .tools .gap{width:8px}
.ks-panel button:hover:not(:disabled){background:var(--jp-layout-color2,#8882)}
.ks-panel button:focus-visible,.ks-panel .behind:focus-visible{outline:2px solid var(--jp-brand-color1,#0969da);outline-offset:1px}
.ks-panel button:disabled{opacity:.45;cursor:default}
.ks-panel button.waits:disabled{opacity:.8;border-style:dashed}
.ks-panel button.edit.changed,.ks-panel button.apply{border-color:var(--jp-warn-color1,#9a6700);font-weight:600}
.ks-panel [hidden]{display:none!important}
.ks-panel .chip{font-weight:600;border:1px solid currentColor;border-radius:10px;padding:1px 9px;white-space:nowrap;margin-left:6px;color:var(--ks-dim)}
.ks-panel[data-status=running] .chip{color:var(--ks-good)}.ks-panel[data-status=failed] .chip{color:var(--ks-wrong)}
.ks-panel[data-status=paused] .chip,.ks-panel[data-status=starting] .chip{color:var(--ks-care)}
.ks-panel .status{white-space:pre-wrap;overflow-wrap:anywhere;flex:1 1 12em}
.ks-panel .lost{margin:4px 0;padding:6px 10px;border:1px solid var(--ks-edge);border-left:4px solid var(--ks-care);border-radius:4px;
background:var(--ks-face);overflow-wrap:anywhere;user-select:text}
.ks-panel[data-kernel] .canvas,.ks-panel[data-kernel] .map,.ks-panel[data-kernel] .history{filter:grayscale(1);opacity:.75}
.ks-panel .body{display:flex;gap:10px;align-items:stretch;position:relative}
.ks-panel .body.open{min-height:min(440px,60vh)}
.ks-panel .picture{position:relative;flex:1 1 0;min-width:0;display:flex;flex-direction:column}
.ks-panel .canvas{flex:1 1 auto;overflow:auto;max-height:max(300px,min(72vh,100vh - 260px));border:1px solid var(--jp-border-color2,#8883);border-radius:6px;
background:var(--jp-layout-color0,transparent);cursor:grab;user-select:none;resize:vertical;overscroll-behavior:contain}
.ks-panel .canvas.drags,.ks-panel .canvas.drags *{cursor:grabbing}
.ks-panel .canvas:focus-visible{outline:2px solid var(--jp-brand-color1,#0969da)}
.ks-panel .canvas>svg{display:block;margin:0 auto;max-width:none}
.ks-panel [data-node]{cursor:pointer}
.ks-panel [data-node] .outline{outline:none} /* marimo has a class of this name, which draws a frame */
.ks-panel [data-node].selected .outline{stroke-width:4}
.ks-panel .map{position:absolute;right:18px;bottom:18px;border:1px solid var(--ks-edge);border-radius:4px;cursor:crosshair;
background:var(--jp-layout-color0,Canvas);opacity:.93;touch-action:none}
.ks-panel .map path{fill:none;stroke:var(--ks-dim);opacity:.4;vector-effect:non-scaling-stroke;stroke-width:1}
.ks-panel .map rect{fill:var(--ks-dim);opacity:.55}
.ks-panel .map .topic,.ks-panel .map .internal-topic,.ks-panel .map .repartition{fill:#4493f8;opacity:.9}
.ks-panel .map .store{fill:#d29922;opacity:.9}
.ks-panel .map .is-failed{fill:var(--ks-wrong);opacity:1}.ks-panel .map .is-stale{fill:var(--ks-care);opacity:1}
.ks-panel .map .seen{fill:var(--jp-brand-color1,#0969da);fill-opacity:.12;stroke:var(--jp-brand-color1,#0969da);stroke-width:2;
vector-effect:non-scaling-stroke;opacity:1}
.ks-panel .drawer{flex:0 0 clamp(280px,38%,560px);min-width:0;position:sticky;top:0;align-self:stretch;display:flex;flex-direction:column;
border:1px solid var(--jp-border-color2,#8883);border-radius:6px;background:var(--jp-layout-color0,Canvas);contain:size}
.ks-panel .drawer-head{display:flex;gap:6px;align-items:center;padding:5px 8px;border-bottom:1px solid var(--jp-border-color2,#8883)}
.ks-panel .drawer-head b{flex:1 1 auto;min-width:0;overflow-wrap:anywhere}
.ks-panel .outdated{padding:5px 8px;border-bottom:1px solid var(--jp-border-color2,#8883);color:var(--ks-care);font-weight:600}
.ks-panel .drawer .history{padding:4px 8px;display:flex;gap:12px;color:var(--ks-dim)}.ks-panel .drawer .history:empty{display:none}
.ks-panel .behind{flex:1 1 auto;min-height:0;overflow:auto;padding:6px 8px;overscroll-behavior:contain}
.ks-panel .behind>div{margin-bottom:10px}
.ks-panel .behind>div:empty{display:none}
.ks-panel .paging{display:flex;flex-wrap:wrap;gap:6px;align-items:center}
.ks-panel .paging .filter{font:inherit;flex:1 1 10em;min-width:6em;padding:2px 6px;border:1px solid var(--ks-edge);border-radius:4px;
background:var(--jp-layout-color0,Canvas);color:inherit}
.ks-panel .detail.explained tbody tr{cursor:pointer}
.ks-panel .paging .moments{flex:1 1 10em;min-width:6em}
.ks-panel .paging .paged,.ks-panel .paging .moment{color:var(--ks-dim);white-space:nowrap;font-variant-numeric:tabular-nums}
.ks-panel pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:4px 0;padding:6px 8px;background:var(--jp-layout-color2,#8881);
border-radius:4px;max-height:16em;overflow:auto;font:12px var(--jp-code-font-family,ui-monospace,monospace)}
.ks-panel pre.ks-error{border-left:3px solid var(--jp-error-color1,#cf222e)}
.ks-panel mark{background:var(--jp-warn-color3,#fff8c5);color:inherit;display:inline-block;min-width:100%}
[data-jp-theme-light='false'] .ks-panel mark{background:#5a4a00}
.ks-panel .ks-ways{display:flex;flex-wrap:wrap;gap:6px;align-items:center;margin:4px 0}
.ks-panel .ks-ways .ks-go{margin-left:0}
.ks-panel .ks-question{font-weight:600}
.ks-panel .ks-go{display:none;margin-left:6px}
body[data-kstreams-cells] .ks-panel .ks-go{display:inline}
@container (max-width:640px){.ks-panel .drawer{position:absolute;inset:0 0 0 auto;width:min(85%,420px);z-index:2;box-shadow:-4px 0 12px #0004}}
@media print{.ks-panel,[data-jp-theme-light] .ks-panel{color:#1f2328;background:#fff;--ks-dim:#59636e;--ks-good:#1a7f37;--ks-wrong:#cf222e;--ks-care:#9a6700}
.ks-panel .bar button,.ks-panel .map,.ks-panel .tools button{display:none}
.ks-panel .canvas{max-height:none!important;height:auto!important;overflow:visible;border:0}
.ks-panel .canvas>svg{width:auto!important;height:auto!important;max-width:100%}
.ks-panel .body{display:block}.ks-panel .drawer{contain:none;position:static}.ks-panel .behind{max-height:none;overflow:visible}}
`;
